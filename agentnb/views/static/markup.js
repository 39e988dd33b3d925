// The entry module for our own markup, in which the kernel has escaped all foreign text. It is short,
// since a notebook saves it with each part of a panel.

function markup() {
  let said; // newer than the model's value, which is what a page saves
  return {
    initialize({ model }) {
      model.on("msg:custom", (message) => {
        said = message.value;
      });
      model.on("change:value", () => {
        said = undefined; // it is sent after its message, or again
      });
    },
    render({ model, el }) {
      const shown = document.createElement("div");
      shown.className = "agentnb-markup";
      const show = () => {
        shown.innerHTML = said ?? model.get("value");
      };
      model.on("msg:custom", show);
      model.on("change:value", show);
      show();
      el.append(shown);
      return () => {
        model.off("msg:custom", show);
        model.off("change:value", show);
      };
    },
  };
}

export default markup;
