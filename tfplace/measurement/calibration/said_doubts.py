"""What makes a calibration's figures doubtful, a sentence each."""

from __future__ import annotations

from collections.abc import Mapping

from tfplace.measurement.calibration.link_figures import LinkFigures
from tfplace.measurement.calibration.transfer_work import NamePair

# Figures are said to be doubtful above these shares: the CPU time of other processes, the spread of
# equal steps, and how far half of a link's sizes miss its line.
BUSY_MACHINE_SHARE = 0.1
NOISY_SPREAD = 0.2
POOR_RESIDUAL = 0.25


def warnings_about(
    background_share: float | None,
    spread: float,
    links: Mapping[NamePair, LinkFigures],
    refused: Mapping[NamePair, str] | None = None,
) -> list[str]:
    """Sentences on what makes the figures doubtful: other work on the machine, noise, poor fits."""
    warnings = []
    if background_share is not None and background_share > BUSY_MACHINE_SHARE:
        warnings.append(
            f"other processes used {background_share:.0%} of this machine's CPU time: links, what "
            "transfers take of their ends and contention stay as they were assumed; calibrate "
            "again when it is quiet"
        )
    if spread > NOISY_SPREAD:
        warnings.append(
            f"equal steps differ by {spread:.0%} (p75 - p25 over the median): a noisy machine"
        )
    warnings += [
        f"the link from {source} to {target} is no straight line: half of its sizes miss the fit "
        f"by more than {link.fit.median_relative_residual:.0%}"
        for (source, target), link in links.items()
        if link.fit.median_relative_residual > POOR_RESIDUAL
    ]
    warnings += [
        f"what was measured of the link from {source} to {target} is not used: {why}; it has the "
        "figures of links of its kind, or those that were assumed; calibrate again when the "
        "machine is quiet"
        for (source, target), why in (refused or {}).items()
    ]
    return warnings
