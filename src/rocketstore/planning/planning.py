"""``plan``: say as data what would mend a store, and what is lost; nothing is changed."""

from __future__ import annotations

import dataclasses
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.examination import doctor
from rocketstore.diagnosis.verdict import Verdict
from rocketstore.directory.lock import is_held
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import check_root
from rocketstore.errors import ConfigError, RepairRefusedError, RocketStoreError
from rocketstore.planning.new_store import StoreBuild
from rocketstore.planning.repair_plan import RepairPlan, identity_of, selected
from rocketstore.store.arguments import check_settings, merge, now_ms


def plan(
    path: str | os.PathLike[str],
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    placeholders: bool = True,
    accept_loss: bool = False,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> RepairPlan:
    """Say what would mend a store: each step with its files and reason, and all that is lost.

    The store is examined as by ``doctor(level="deep")``. What it should have is built in a
    temporary folder from the readable part of the log; the plan is the difference. Nothing of the
    store is changed, and no lock is taken.

    Parameters
    ----------
    path : path
        The store's root.
    only, skip : sequence of str
        Globs of kinds (``queue.*``) or codes (``checkpoint.future``) of steps.
    placeholders : bool
        Keep the queue offsets of lost messages with empty ones, as ``salvage`` does.
    accept_loss : bool
        Allow steps that give up a readable record.
    config : MessageStoreConfig, optional
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    RepairPlan
        ``empty`` if nothing is to be done.

    Raises
    ------
    RepairRefusedError
        There is no safe plan; the text says what a person must do first.
    ConfigError
        A wanted step needs one that is not wanted.
    FileNotFoundError, StoreFullError, OSError
        The store cannot be read, or the temporary folder has no room.

    Notes
    -----
    The temporary folder (``TMPDIR``) needs room for queues, index and changed segments. Threading:
    any number of calls at once.
    """
    settings = merge(config, options)
    check_settings(settings)
    root = Path(path)
    check_root(root, "r")
    if is_held(root / formats.LOCK_FILE):
        raise RepairRefusedError(
            f"another process writes {root} (store.in-use); stop it, then make the plan"
        )
    wanted = {
        "only": list(only), "skip": list(skip), "placeholders": placeholders,
        "acceptLoss": accept_loss,
    }  # fmt: skip
    identity = identity_of(root), identity_of(root, times=False)
    with tempfile.TemporaryDirectory(prefix="rocketstore-") as folder:
        build = build_in(root, settings, Path(folder), wanted, made_at=now_ms(), progress=progress)
    if identity_of(root) != identity[0]:
        raise RepairRefusedError(f"{root} was changed while it was read; stop what writes it")
    return dataclasses.replace(
        build,
        store={
            "path": os.fspath(root),
            "identity": identity[0],
            "identityWithoutTimes": identity[1],
            **build.store,
            "config": changed_settings(settings),
        },
    )


def _without_queues(verdict: Verdict, error: Exception) -> str:
    """Return what to do with a store whose queues are in RocksDB."""
    for one in verdict.findings:
        if one.code.startswith("log.") and one.severity in ("error", "critical"):
            return (
                f"{one.what} ({one.code}), and no plan is made for queues in RocksDB. Do not start "
                "a broker, which may delete what follows; first save the messages with rocketstore "
                "export"
            )
    return str(error)


def build_in(
    root: Path,
    settings: MessageStoreConfig,
    target: Path,
    wanted: dict[str, Any],
    *,
    made_at: int,
    is_locked: bool = False,
    progress: Progress | None,
) -> RepairPlan:
    """Build the new files of a store below ``target``; return the plan, its store unidentified."""
    verdict = doctor(root, level="deep", config=settings, limit=100_000, progress=progress)
    build = StoreBuild(
        StorePaths.of(root, settings).absolute(), settings, verdict, target.absolute(),
        made_at=made_at, placeholders=wanted["placeholders"], is_locked=is_locked,
        progress=progress,
    )  # fmt: skip
    try:
        build.run()
    except RepairRefusedError:
        raise
    except io.UnsupportedOperation as error:
        raise RepairRefusedError(_without_queues(verdict, error)) from error
    except (RocketStoreError, NotImplementedError) as error:
        if isinstance(error, (ConfigError, OSError)):
            raise
        raise RepairRefusedError(f"there is no safe plan: {error}") from error
    if build.by_repair and not wanted["acceptLoss"]:
        ranges = ", ".join(f"{one['log'][0]} to {one['log'][1]}" for one in build.by_repair[:5])
        raise RepairRefusedError(
            f"the repair must give up readable records at log offsets {ranges}: no end marker fits "
            "after them; --accept-loss (accept_loss=True) allows that"
        )
    try:
        steps = selected(build.steps, wanted["only"], wanted["skip"])
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return RepairPlan(
        store=build.facts,
        steps=steps,
        already=tuple(build.losses),
        by_repair=tuple(build.by_repair),
        placeholders=tuple(build.placeholders),
        left=tuple(build.left),
        options=wanted,
        made_at=made_at,
    )


def changed_settings(settings: MessageStoreConfig) -> dict[str, Any]:
    """Return the options that are not at their defaults, as JSON has them."""
    usual = MessageStoreConfig()
    found = {}
    for item in dataclasses.fields(MessageStoreConfig):
        value = getattr(settings, item.name)
        if value != getattr(usual, item.name):
            found[item.name] = value if isinstance(value, (int, str, float)) else str(value)
    return found
