"""``report``: a store's state as one HTML page that loads nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.verdict import Verdict
from rocketstore.directory.paths import configured_logs
from rocketstore.directory.place import is_there
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import refuse_odd_output, write_file
from rocketstore.reporting.assets import SCRIPT, STYLE, policy
from rocketstore.reporting.charts import symbols
from rocketstore.reporting.engine_sections import (
    config_section,
    delays_section,
    index_section,
    lag_section,
    transactions_section,
)
from rocketstore.reporting.facts import Facts, gather
from rocketstore.reporting.log_sections import (
    age_section,
    map_section,
    topics_section,
    volume_section,
)
from rocketstore.reporting.markup import Html, both_times, join, tag, visible
from rocketstore.reporting.redaction import Redaction
from rocketstore.reporting.state_sections import (
    findings_section,
    forecast_section,
    headline,
    lost_section,
    verdict_section,
)
from rocketstore.reporting.summaries import summary
from rocketstore.version import __version__

#: Largest page.
MAX_NBYTES = 2 << 20
#: Rows of a table; halved until the page is small enough.
_MAX_ROWS = 320


@dataclass(frozen=True, slots=True)
class StoreReport:
    """A written report.

    Attributes
    ----------
    path : str
        The page.
    nbytes : int
    verdict : Verdict
        What ``doctor`` says about the store.
    problems : dict of str to str
        Parts that could not be read, and why.
    """

    path: str
    nbytes: int
    verdict: Verdict
    problems: dict[str, str]

    @property
    def ok(self) -> bool:
        """Return whether no finding is graver than a note."""
        return self.verdict.ok


def report(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    deep: bool = False,
    title: str | None = None,
    redact: bool = False,
    config: MessageStoreConfig | str | os.PathLike[str] | None = None,
    broker_versions: Sequence[str] | None = None,
    broker_options: dict[str, str] | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> StoreReport:
    """Write a store's state as one HTML page. The store is only read, also beside a writer.

    Parameters
    ----------
    path : path
        The store, a bare ``commitlog`` folder, or one segment.
    output : path
        The page, at most 2 MiB, which loads nothing. It replaces a file atomically, and must not
        be inside the store.
    deep : bool
        Compare every checksum.
    title : str, optional
        By default the store's path.
    redact : bool
        Show keys and hosts as salted hashes.
    config : MessageStoreConfig or path, optional
        The broker's configuration or its file; a file is examined, too.
    broker_versions, broker_options
        As in ``doctor``: for which versions to forecast, and options that decide.
    jobs : int, optional
        Threads that read the log; by default one for each processor, at most 4.
    progress : callable, optional
        ``progress(what, done, total)``.

    Returns
    -------
    StoreReport

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        There is nothing at ``path``, or no folder for ``output``.
    MappedFileError
        ``output`` is inside the store, or not a regular file.
    ConfigError
        The configuration is invalid.
    OSError
        The page cannot be written.

    Notes
    -----
    Time: that of ``doctor``, and one pass over the log. Threading: any number of calls at once.
    """
    place, target = Path(path), Path(os.path.abspath(output))
    settings, file = _settings(config)
    if not is_there(place):
        raise FileNotFoundError(f"there is no store {place}")
    check_output(place, target, settings)
    facts = gather(
        place, level="deep" if deep else "full", config=settings, config_file=file, jobs=jobs,
        broker_versions=broker_versions, broker_options=broker_options, progress=progress,
    )  # fmt: skip
    content = render(facts, title=title, redact=redact)
    write_file(target, content)
    return StoreReport(os.fspath(output), len(content), facts.verdict, facts.problems)


def _settings(
    config: MessageStoreConfig | str | os.PathLike[str] | None,
) -> tuple[MessageStoreConfig, str | os.PathLike[str] | None]:
    if config is None or isinstance(config, MessageStoreConfig):
        return config or MessageStoreConfig(), None
    settings = MessageStoreConfig.from_properties(config)
    return settings.replace(store_path_root_dir=None), config


def check_output(path: Path, output: Path, config: MessageStoreConfig) -> None:
    """Raise unless ``output`` is outside the store at ``path``, in a folder, and no odd file."""
    refuse_odd_output(output)
    roots = [path if path.is_dir() else path.parent]
    roots += map(Path, configured_logs(config))
    if roots[0].name == formats.COMMIT_LOG_DIR:
        roots.append(roots[0].parent)
    for root in roots:
        for one in (output, Path(os.path.realpath(output))):
            if _is_inside(one, root):
                raise MappedFileError(f"{output} is inside the store {root}, which is only read")


def _is_inside(path: Path, root: Path) -> bool:
    """Return whether a file lies below a folder, by the identity of the folders."""
    try:
        about = os.stat(root)
    except OSError:
        return False  # reading the store reports it
    for folder in path.parents:
        try:
            found = os.stat(folder)
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == (about.st_dev, about.st_ino):
            return True
    return False


def render(facts: Facts, *, title: str | None, redact: bool) -> bytes:
    """Return the page, with as many rows of its tables as fit in 2 MiB."""
    redaction, limit = Redaction(redact), _MAX_ROWS
    while True:
        content = _page(facts, title, redaction, limit).encode("utf-8")
        if len(content) <= MAX_NBYTES or limit <= 1:
            return content
        limit //= 2


def _sections(facts: Facts, redaction: Redaction, limit: int) -> list[tuple[str, str, Html]]:
    return [
        ("forecast", "Forecast by version", forecast_section(facts, redaction)),
        ("findings", "Findings", findings_section(facts, redaction, limit)),
        ("lost", "Data lost", lost_section(facts, limit)),
        ("map", "Map of the log", map_section(facts, limit)),
        ("volume", "Volume over time", volume_section(facts)),
        ("topics", "Bytes per topic", topics_section(facts, min(limit, 40))),
        ("age", "Age", age_section(facts)),
        ("lag", "Lag", lag_section(facts, redaction, limit)),
        ("delays", "Delays due", delays_section(facts, redaction)),
        ("transactions", "Undecided transactions",
         transactions_section(facts, redaction, limit)),
        ("index", "Index health", index_section(facts, redaction, limit)),
        ("config", "Configuration", config_section(facts, redaction, limit)),
    ]  # fmt: skip


def _heading(name: str, heading: str, facts: Facts) -> Html:
    words = summary(name, facts)
    shown = None if words is None else tag("small", words)
    return tag("h2", heading, shown, id=f"h-{name}")


def _page(facts: Facts, title: str | None, redaction: Redaction, limit: int) -> Html:
    named = title if title is not None else facts.path
    sections = _sections(facts, redaction, limit)
    taken = join(("Taken ", both_times(facts.at), f" by rocketstore {__version__}, level "
                  f"{facts.verdict.level}. Times are UTC."))  # fmt: skip
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{headline(facts.verdict)} – {visible(named, 120)}"),
        tag("style", Html(STYLE)),
    )
    links = [tag("a", heading, href=f"#{name}") for name, heading, _ in sections]
    main = tag(
        "main",
        tag("section", verdict_section(facts, redaction), aria_label="Verdict", id="verdict"),
        tag("nav", join(links, " "), aria_label="Sections"),
        *(
            tag("section", _heading(name, heading, facts), content, id=name,
                aria_labelledby=f"h-{name}")
            for name, heading, content in sections
        ),
    )  # fmt: skip
    header = tag("header", tag("h1", named), tag("p", taken, class_="soft"))
    parts = [f"{facts.path} was only read."]
    if redaction.is_on:
        parts.append("Keys and hosts are hashes that hold for this page alone.")
    footer = tag("footer", tag("p", " ".join(parts), class_="soft"))
    body = tag("body", symbols(), header, main, footer, tag("script", Html(SCRIPT)))
    return Html(f'<!doctype html>\n<html lang="en">{head}{body}</html>\n')
