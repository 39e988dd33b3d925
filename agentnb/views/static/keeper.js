// The entry module beside a control in a page without a tree. It has no view, and lives as long as its
// model: it shows the control until no kernel answers, and names a slider's handle.

import { connectTo, whenKernelIsLost } from "./any_widget.js";
import { nameSliders } from "./labels.js";

const NO_FRAMES = { seq: 0, done: true, gap: false, take: () => ({ outcome: "stale" }) };

function keeper() {
  return {
    initialize({ model }) {
      const connection = connectTo(model, NO_FRAMES);
      // A sheet, since the control may come into the page later; not its text, which a policy may forbid.
      const sheet = new CSSStyleSheet();
      sheet.insertRule(`.${model.get("control")} {}`);
      const { style } = sheet.cssRules[0];
      const show = (isThere) => {
        style.setProperty("visibility", isThere ? "visible" : "hidden", "important");
        style.setProperty("display", isThere ? "" : "none", "important");
      };
      show(true);
      document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      const ignore = () => {};
      const [alive, closed] = [() => show(true), () => show(false)];
      connection.join({ frame: ignore, message: ignore, alive, closed });
      const stopNaming = nameSliders(document.body);
      const stopHearing = whenKernelIsLost(model, () => connection.close());
      return () => {
        stopNaming();
        stopHearing();
        connection.close();
      };
    },
  };
}

export default keeper;
