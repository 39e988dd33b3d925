// What a zoom means in pixels. Cards shrink and say less, while letters keep a size that can be read:
// so an overview stays legible, which a mere picture of it, made smaller, would not. Pure.

import { CARD_HEIGHT, CARD_WIDTH } from "./layout.js";

const COLUMN = 222;
const ROW = 66;
// Words need width more than height: columns shrink more slowly than rows.
const SHRINKING = 0.45;
const FONT = 12;
const SMALLEST_FONT = 10.5;
// Of an overview that does not fit, a part that can be told apart is worth more than all of it.
const SMALLEST_FIT = 0.18;
/** Free pixels around the tree. */
export const MARGIN = 12;

const STEPS = [0.12, 0.18, 0.25, 0.33, 0.45, 0.6, 0.75, 0.9, 1, 1.25, 1.5, 2];
export const MIN_ZOOM = STEPS[0];
export const MAX_ZOOM = STEPS.at(-1);

/** Pixels of columns, rows, cards and letters, and how many `lines` a card has room for, 0 to 3. */
export function sizesAt(zoom) {
  const row = ROW * zoom;
  const column = COLUMN * (zoom < 1 ? zoom ** SHRINKING : zoom);
  const cardHeight = row * CARD_HEIGHT;
  return {
    row,
    column,
    cardHeight,
    cardWidth: column * CARD_WIDTH,
    font: Math.min(Math.max(SMALLEST_FONT, FONT * zoom), Math.max(8, cardHeight)),
    lines: cardHeight >= 51 ? 3 : cardHeight >= 34 ? 2 : cardHeight >= 15 ? 1 : 0,
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

/** The largest zoom, up to 100 %, at which so many columns and rows are seen at once. */
export function fittingZoom({ columns, rows }, { width, height }) {
  const byRows = (height - 2 * MARGIN) / (ROW * Math.max(1, rows));
  const byColumns =
    ((width - 2 * MARGIN) / (COLUMN * Math.max(1, columns - 1 + CARD_WIDTH))) ** (1 / SHRINKING);
  return Math.min(1, Math.max(SMALLEST_FIT, Math.min(byRows, byColumns)));
}
