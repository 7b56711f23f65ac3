"""A self-contained HTML page about a folder of images: the most ambiguous first, near duplicates, outliers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pcl.metrics.undefined import told
from pcl.prediction.posteriors import LEVEL
from pcl.presentation.markup import Html, document, lines, tag
from pcl.studies.inspection.application import Applied, Neighbourhood
from pcl.studies.inspection.figures import png_of_image
from pcl.studies.inspection.page import POLICY, STYLE, Plot, drawn, inline

N_AMBIGUOUS, N_CERTAIN, N_PAIRS, N_OUTLIERS = 36, 12, 12, 12  # shown; the tables have all
_THUMBNAIL = 96  # pixels of a side
_STYLE = """
figure { width: 6.5rem; } figure img { width: 6rem; height: 6rem; image-rendering: auto; }
.pair { display: flex; border: 1px solid var(--line); border-radius: 4px; padding: .25rem; }
"""


@dataclass(frozen=True)
class Origin:
    """The encoder and the images of a page, in words."""

    model: str
    images: str


def page(origin: Origin, found: Applied, near: Neighbourhood | None, rejection: Plot | None) -> str:
    """Return the page's HTML; a single image has no neighbourhood."""
    title = f"{origin.images} by {origin.model}"
    policy = tag("meta", http_equiv="Content-Security-Policy", content=POLICY)
    parts = [tag("h1", title), _head(found, near), _certainty(found)]
    if near is not None:
        parts += [_duplicates(found, near), _outliers(found, near)]
    if rejection is not None:
        parts.append(tag("h2", "Recall@1 as the least certain images are rejected"))
        parts.append(tag("div", drawn(rejection), class_="plots"))
    return document(title, lines(*parts), policy, tag("style", Html(STYLE + _STYLE)))


def _head(found: Applied, near: Neighbourhood | None) -> Html:
    rising, last = found.kappa[found.by_ambiguity], len(found.places) - 1
    kappa = [float(rising[round(share * last)]) for share in (0.05, 0.5, 0.95)]
    rows = [("images", f"{len(found.places):,}"), ("kappa, 5%, 50%, 95%", ", ".join(f"{k:.3g}" for k in kappa))]
    if near is not None:
        rows += [("pairs of near duplicates", f"{len(near.duplicates):,}"), ("outliers", f"{len(near.outliers):,}")]
    if near is not None and near.curve is not None:
        rows.append(("Recall@1 of the subfolders", told(float(near.curve.recall[-1]))))
        rows.append(("area under Recall@1 by rejection", told(near.curve.area)))
    cells = [tag("tr", tag("th", words), tag("td", value, class_="number")) for words, value in rows]
    told_bad = tag("p", found.unreadable_told) if found.unreadable else None
    return lines(tag("table", tag("tbody", cells)), told_bad)


def _certainty(found: Applied) -> Html:
    order = found.by_ambiguity.tolist()
    certain = order[::-1][: min(N_CERTAIN, len(order) // 2)]
    ambiguous = order[: min(N_AMBIGUOUS, len(order) - len(certain))]
    return lines(
        tag("h2", "Most ambiguous images"),
        tag("p", "From the smallest kappa up."),
        _tiles(_tile(found, image, f"kappa {found.kappa[image]:.3g}") for image in ambiguous),
        tag("h2", "Most certain images"),
        tag("p", "From the largest kappa down."),
        _tiles(_tile(found, image, f"kappa {found.kappa[image]:.3g}") for image in certain),
    )


def _duplicates(found: Applied, near: Neighbourhood) -> Html:
    angles = near.angle.rad2deg()
    pairs = []
    for first, second in near.duplicates[:N_PAIRS].tolist():
        angle = angles[first if near.nearest[first] == second else second]
        tiles = [_tile(found, image, f"{angle:.2g}° apart") for image in (first, second)]
        pairs.append(tag("div", tiles, class_="pair"))
    return lines(
        tag("h2", "Near duplicates"),
        tag("p", f"An image and its nearest other, each within the cap around the other's mu that holds {LEVEL:.0%} of "
            "its posterior: the encoder cannot tell them apart. The nearest pairs first."),
        _tiles(pairs) if pairs else tag("p", "None."),
    )  # fmt: skip


def _outliers(found: Applied, near: Neighbourhood) -> Html:
    angles, caps = near.angle.rad2deg(), found.credible_angle.rad2deg()
    chosen: Sequence[int] = near.outliers[:N_OUTLIERS].tolist()
    tiles = [_tile(found, image, f"nearest {angles[image]:.2g}°, cap {caps[image]:.2g}°") for image in chosen]
    return lines(
        tag("h2", "Outliers"),
        tag("p", f"Images with no other image in their {LEVEL:.0%} cap, the farthest from their nearest first."),
        _tiles(tiles) if tiles else tag("p", "None."),
    )  # fmt: skip


def _tiles(tiles: Iterable[Html]) -> Html:
    return tag("div", list(tiles), class_="tiles")


def _tile(found: Applied, image: int, caption: str) -> Html:
    """Return an image, read once more from its file, with its name and a caption."""
    name = found.names[image]
    pixels = found.folder.image(found.places[image], _THUMBNAIL)
    picture = tag("small", "gone")  # deleted since it was encoded
    if pixels is not None:
        picture = tag("img", src=inline(png_of_image(pixels)), alt=f"{name}, {caption}", width="96", height="96")
    return tag("figure", picture, tag("figcaption", caption, tag("br"), name))
