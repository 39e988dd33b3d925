// The entry module beside a control in a page without a tree. It has no view, and lives as long as its
// model: it shows the control until no kernel answers, and names a slider's handle.

import { connectTo, hearKernel } from "./any_widget.js";
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
      document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      const alive = () => {
        style.setProperty("visibility", "visible", "important");
        style.removeProperty("display");
      };
      // Another view of the control may be alive, as in a notebook that was closed and opened again: a
      // sheet that nobody can change must not stay.
      const leave = () => {
        const others = document.adoptedStyleSheets.filter((each) => each !== sheet);
        document.adoptedStyleSheets = others;
      };
      const closed = ({ isSilent }) => {
        if (!isSilent) return leave();
        style.removeProperty("visibility");
        style.setProperty("display", "none", "important");
      };
      const ignore = () => {};
      connection.join({ frame: ignore, message: ignore, alive, closed });
      const stopNaming = nameSliders(document.body);
      const stopHearing = hearKernel(model, connection);
      return () => {
        stopNaming();
        stopHearing();
        connection.close();
      };
    },
  };
}

export default keeper;
