// The entry module for our own markup, in which the kernel has escaped all foreign text. It is short,
// since a notebook saves it with each part of a panel.

function markup() {
  return {
    render({ model, el }) {
      const shown = document.createElement("div");
      shown.className = "agentnb-markup";
      const show = () => {
        shown.innerHTML = model.get("value");
      };
      model.on("change:value", show);
      show();
      el.append(shown);
      return () => model.off("change:value", show);
    },
  };
}

export default markup;
