// Converts a zoom to pixels. Cards shrink and show less while letters stay readable, so an overview
// is legible, unlike a picture made smaller. Pure.

import { CARD_HEIGHT, CARD_WIDTH } from "./layout.js";

const COLUMN = 222;
const ROW = 62;
// Text needs width more than height: columns shrink more slowly than rows.
const SHRINKING = 0.45;
const FONT = 12;
const SMALLEST_FONT = 10.5;
// A card in a column this wide still has room for a shape, a path and the start of a status.
const SMALLEST_COLUMN = 104;
/** Free pixels around the tree. */
export const MARGIN = 12;
// Room for the button beside a collapsed branch in the last column.
const AFTER_LAST = 16;

// The steps for fitting a tree automatically: few, so that a growing tree rarely changes its size.
// At the last one a card has one line; at a smaller one it would be a dot.
const FIT_STEPS = [1, 0.92, 0.85, 0.75, 0.66, 0.57, 0.45, 0.36, 0.28];
const STEPS = [0.12, 0.18, 0.25, 0.33, 0.45, 0.6, 0.75, 0.9, 1, 1.25, 1.5, 2];
export const MIN_ZOOM = STEPS[0];
export const MAX_ZOOM = STEPS.at(-1);

/**
 * Sizes of columns, rows, cards and letters in pixels, and how many `lines` a card has room for, 0
 * to 3. `squeeze` is a factor for the width of columns; it does not change the rows.
 */
export function sizesAt(zoom, squeeze = 1) {
  const row = ROW * zoom;
  const column = columnAt(zoom) * squeeze;
  const cardHeight = row * CARD_HEIGHT;
  return {
    row,
    column,
    cardHeight,
    cardWidth: column * CARD_WIDTH,
    font: Math.min(
      Math.max(SMALLEST_FONT, FONT * zoom * Math.min(1, squeeze)),
      Math.max(8, cardHeight),
    ),
    isNarrow: column * CARD_WIDTH < 150,
    lines: cardHeight >= 46 ? 3 : cardHeight >= 31 ? 2 : cardHeight >= 15 ? 1 : 0,
  };
}

/** The next larger (`direction` 1) or smaller (-1) step. */
export function nextZoom(zoom, direction) {
  const steps = direction > 0 ? STEPS : [...STEPS].reverse();
  return steps.find((step) => (step - zoom) * direction > 0.001) ?? steps.at(-1);
}

export function limitZoom(zoom) {
  return Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, zoom));
}

/** The size in pixels of a tree with these columns and rows, with the margin around it. */
export function extentAt({ columns, rows }, sizes) {
  return {
    width: (Math.max(1, columns) - 1) * sizes.column + sizes.cardWidth + 2 * MARGIN + AFTER_LAST,
    height: (Math.max(1, rows) - 1) * sizes.row + sizes.cardHeight + 2 * MARGIN,
  };
}

/** The largest zoom step up to 100 % at which the rows fit `height` pixels, else the smallest. */
export function fittingZoom({ rows }, height) {
  const fits = (zoom) => extentAt({ columns: 1, rows }, sizesAt(zoom)).height <= height;
  return FIT_STEPS.find(fits) ?? FIT_STEPS.at(-1);
}

/**
 * The `squeeze` with which the columns fit into `width` pixels at a zoom, within limits: below 1 if
 * they are too wide, above 1 if there is room.
 */
export function fittingSqueeze({ columns }, zoom, width) {
  const natural = columnAt(zoom);
  const free = width - 2 * MARGIN - AFTER_LAST;
  const wanted = free / (Math.max(1, columns) - 1 + CARD_WIDTH);
  // Low cards use all the width there is: they have status and task in one line.
  return Math.min(COLUMN, Math.max(SMALLEST_COLUMN, wanted)) / natural;
}

function columnAt(zoom) {
  return COLUMN * (zoom < 1 ? zoom ** SHRINKING : zoom);
}
