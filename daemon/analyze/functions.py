"""Hot functions: self and total time of each function over a profile."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from profd.daemon.analyze.profile import Profile
from profd.daemon.store.reader import RunReader


class FunctionRow(msgspec.Struct, frozen=True):
    """A function with its share of the samples of a profile.

    ``self_samples`` were seen with the function at the leaf, ``total_samples`` with it anywhere in the stack (once,
    however often it recurs). ``line`` is the line of it that most of its samples stood at, ``source`` its text.
    Shares are 0 to 1 of ``Profile.total``.
    """

    function: str
    file: str
    module_path: str
    is_library: bool
    line: int
    source: str | None
    self_samples: int
    total_samples: int
    self_share: float
    total_share: float


def hot_functions(reader: RunReader, profile: Profile) -> list[FunctionRow]:
    """Return the functions of a profile, those with the most samples of their own first."""
    own: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    at_frame: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for stack, samples in profile.samples.items():
        frames = reader.frames_of(stack)
        leaf = frames[-1]
        own[leaf.function, leaf.file] += samples
        # One frame a function, the innermost where it recurs.
        for key, frame in {(frame.function, frame.file): frame.id for frame in frames}.items():
            total[key] += samples
            at_frame[key][frame] += samples
    whole = max(profile.total, 1)
    rows = []
    for key, total_samples in total.items():
        hottest = reader.frames[at_frame[key].most_common(1)[0][0]]
        rows.append(
            FunctionRow(
                function=key[0],
                file=key[1],
                module_path=hottest.module_path,
                is_library=hottest.is_library,
                line=hottest.line,
                source=hottest.source,
                self_samples=own[key],
                total_samples=total_samples,
                self_share=own[key] / whole,
                total_share=total_samples / whole,
            )
        )
    rows.sort(key=lambda row: (-row.self_samples, -row.total_samples, row.module_path, row.function))
    return rows
