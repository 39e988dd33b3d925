// Which addresses are shown as images: only those that contain one.

import assert from "node:assert/strict";
import { test } from "node:test";

import { isImage } from "../../agentnb/views/static/pictures.js";

test("an address that contains an image is shown", () => {
  for (const type of ["png", "jpeg", "gif", "webp"]) {
    assert.ok(isImage(`data:image/${type};base64,iVBORw0KGgo=`));
  }
});

test("no other address is shown", () => {
  for (const address of [
    "",
    undefined,
    {},
    "https://example.org/a.png",
    "javascript:alert(1)",
    "data:image/svg+xml;base64,PHN2Zz4=",
    "data:text/html;base64,PHN2Zz4=",
    "data:image/png;base64,",
    "data:image/png,iVBORw0KGgo=",
    'data:image/png;base64,iVBO" onerror=alert(1)',
    "data:image/png;base64,iVBO\nx",
    " data:image/png;base64,iVBO",
  ]) {
    assert.equal(isImage(address), false, String(address));
  }
});
