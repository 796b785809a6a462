"""The page's style sheet and script, and the policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root{color-scheme:light dark;--page:#f2f4f6;--card:#fff;--band:#f2f4f6;--line:#dde2e7;
--ink:#1b2026;--soft:#53606c;--mark:#2b6493;--rail:#e6eaee;--good:#17652e;--warn:#7a4b00;
--bad:#a61f16;--good-tint:#eaf5ed;--warn-tint:#fdf3df;--bad-tint:#fcebe9}
@media screen and (prefers-color-scheme:dark){:root{--page:#0f1317;--card:#181d22;--band:#11161a;
--line:#2f373f;--ink:#e5e8eb;--soft:#a3aeb9;--mark:#7db4dd;--rail:#2a3138;--good:#7fd69a;
--warn:#f0bd5c;--bad:#ff9a90;--good-tint:#15271b;--warn-tint:#2b2415;--bad-tint:#311b1a}}
*{box-sizing:border-box}
html{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;
-webkit-text-size-adjust:100%;scroll-padding-top:.75rem}
body{margin:0 auto;max-width:80rem;padding:1.5rem 1.25rem 3rem;overflow-wrap:anywhere}
header{margin:0 0 1rem}
h1{font-size:1.35rem;line-height:1.3;font-weight:650;margin:0}
h2{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 .75rem;font-size:1.08rem;font-weight:650;
margin:0 0 .6rem}
h2 small{font-weight:400;font-size:.9rem}
h3{font-size:.95rem;font-weight:600;margin:1.4rem 0 .3rem}
p{margin:.4rem 0;max-width:48rem}
small,.soft{color:var(--soft);font-size:.87rem}
main{display:grid;grid-template-columns:minmax(0,1fr)}
main>*{margin:0 0 1rem}
main>section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;
padding:1.1rem 1.25rem}
.state{border-left:.4rem solid var(--soft);border-radius:.35rem;background:var(--band);
padding:.7rem 1rem}
.state b{font-size:1.65rem;line-height:1.25;font-weight:650}
.state p{font-size:1.05rem;margin:.1rem 0 0}
.state.good{border-color:var(--good);background:var(--good-tint)}
.state.warn{border-color:var(--warn);background:var(--warn-tint)}
.state.bad{border-color:var(--bad);background:var(--bad-tint)}
.good b,span.good{color:var(--good)}.warn b,span.warn{color:var(--warn)}
.bad b,span.bad{color:var(--bad)}
span.bad,span.warn,span.good{font-weight:600;white-space:nowrap}
.next{margin:1rem 0 0;padding:0 0 0 1.6rem}
.next li{margin:.5rem 0;padding-left:.2rem}
.next li::marker{color:var(--soft);font-variant-numeric:tabular-nums}
.next p{margin:.1rem 0}
pre{background:var(--band);border:1px solid var(--line);border-radius:.35rem;margin:.2rem 0;
padding:.45rem .7rem;white-space:pre-wrap;user-select:all;-webkit-user-select:all;
font:.9rem/1.45 ui-monospace,monospace}
code{font:.9rem ui-monospace,monospace}
td code{font-size:.83rem}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(7.25rem,1fr));gap:1rem;
margin:1.25rem 0 0}
.facts div{display:flex;flex-direction:column-reverse;justify-content:flex-end;
border-top:2px solid var(--line);padding-top:.35rem}
.facts dt{color:var(--soft);font-size:.82rem;line-height:1.35}
.facts dd{margin:0;font-size:1.3rem;line-height:1.3;font-variant-numeric:tabular-nums}
nav{font-size:.9rem;line-height:1.9}
nav a{margin-right:.9rem;white-space:nowrap}
a{color:var(--mark);text-underline-offset:.2em}
nav a:not(:hover){text-decoration-color:transparent}
:focus-visible{outline:2px solid var(--mark);outline-offset:2px}
:target{outline:2px solid var(--mark);outline-offset:2px}
.scroll{overflow-x:auto;margin:.5rem 0 0;overscroll-behavior-x:contain}
table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:baseline;padding:.4rem .95rem .4rem 0;
border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:.2rem}
tbody tr:last-child td{border-bottom:0}
tbody tr:hover td{background:var(--band)}
th{color:var(--soft);font-weight:500;white-space:nowrap;vertical-align:bottom}
td{overflow-wrap:break-word;min-width:3rem;max-width:22rem}
td.n,th.n{text-align:right;white-space:nowrap}
td.g{width:45%;min-width:5rem}
.name,time{white-space:nowrap}
th button{all:unset;cursor:pointer;color:inherit;white-space:nowrap}
th button:hover{color:var(--ink);text-decoration:underline;text-underline-offset:.2em}
th button:focus-visible{outline:2px solid var(--mark);outline-offset:2px}
th button::after{content:"↕";display:inline-block;width:1.3em;text-align:right;
font-size:.8em}
th[aria-sort=ascending] button::after{content:"▲"}
th[aria-sort=descending] button::after{content:"▼"}
.wide{min-width:12.5rem;display:block}
.where{min-width:10.25rem;overflow-wrap:anywhere;display:block}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.plot{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.3rem .7rem;margin:.75rem 0}
.axis{display:flex;flex-direction:column;justify-content:space-between;text-align:right;
margin:-.65rem 0;color:var(--soft);font-size:.8rem;line-height:1.3rem;white-space:nowrap;
font-variant-numeric:tabular-nums}
figcaption{grid-column:2;display:flex;justify-content:space-between;gap:0 1rem;color:var(--soft);
font-size:.8rem;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{display:block}
svg.chart{width:100%;height:11rem;border-bottom:1px solid var(--soft)}
.line{stroke:var(--line);vector-effect:non-scaling-stroke;fill:none}
svg.bar{width:100%;height:.7rem;margin-top:.2rem}
svg.none{position:absolute;width:0;height:0}
.map{display:flex;flex-wrap:wrap;gap:4px;margin:.75rem 0}
.map svg{width:20px;height:20px}
.key svg{width:16px;height:16px}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.85rem;color:var(--soft);
margin:.6rem 0;padding:0;list-style:none}
.key li{display:flex;align-items:center;gap:.4rem}
.mark{fill:var(--mark)}.rest{fill:var(--rail)}
.box{fill:none;stroke:var(--mark);stroke-width:1.5}
.gone{fill:none;stroke:var(--bad);stroke-width:1.5;stroke-dasharray:3 2}
.hurt{fill:var(--bad)}.cross{stroke:var(--card);stroke-width:2;fill:none}
.soon{fill:var(--warn)}
.codes{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));
gap:1rem 1.5rem;margin:.6rem 0}
.codes article{border-top:2px solid var(--line);padding-top:.5rem;font-size:.87rem}
.codes dl{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.1rem .8rem;margin:.3rem 0}
.codes dt{color:var(--soft)}.codes dd{margin:0}
details{margin:.6rem 0 0}
summary{cursor:pointer;color:var(--soft);font-size:.87rem;width:fit-content}
summary:hover{color:var(--ink)}
footer p{margin:0}
@media screen and (min-width:76rem){
main{grid-template-columns:11.5rem minmax(0,1fr);column-gap:1.5rem}
main>section{grid-column:2}
main>nav{grid-column:1;grid-row:1/span 20;align-self:start;position:sticky;top:1.25rem;
line-height:1.45}
nav a{display:block;margin:0;padding:.22rem 0}}
@media (max-width:34rem){body{padding:1rem .6rem 2rem}header{padding:0 .3rem}
main>*{margin:0 0 .7rem}main>section{padding:.85rem .8rem}svg.chart{height:8rem}
.state b{font-size:1.35rem}.next{padding-left:1.2rem}.facts{grid-template-columns:1fr 1fr}
figcaption span:not(:first-child):not(:last-child){display:none}}
@media print{:root{--page:#fff}html{font-size:10.5px}body{max-width:none;padding:0}nav{display:none}
.scroll{overflow:visible}th button::after{content:""}
details::details-content{content-visibility:visible;height:auto}
main{display:block}main>section{border:0;border-top:1px solid var(--line);border-radius:0;
padding:.9rem 0}
h2,h3{break-after:avoid}tr,figure,.state,article{break-inside:avoid}
svg,.state{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

#: Sorts tables; everything else works without it.
SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const value = (row) => {
        const cell = row.cells[column];
        return "key" in cell.dataset ? Number(cell.dataset.key) : cell.textContent;
      };
      const rows = Array.from(body.rows);
      rows.sort((one, other) => {
        const a = value(one), b = value(other);
        if (typeof a === "number" && typeof b === "number") return a - b;
        return String(a).localeCompare(String(b), undefined, {numeric: true});
      });
      if (down) rows.reverse();
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}
"""


def _hash_of(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy() -> str:
    """Return the page's content security policy."""
    return (
        f"default-src 'none'; style-src {_hash_of(STYLE)}; script-src {_hash_of(SCRIPT)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
