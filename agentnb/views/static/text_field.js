// The entry module for a text field with a label. In place of that of ipywidgets, whose style some
// front ends do not know. What is typed is sent when the field is left, or with Enter.

function textField() {
  return {
    render({ model, el }) {
      const label = document.createElement("label");
      const words = document.createTextNode("");
      const field = document.createElement("input");
      label.className = "agentnb-text-field";
      label.dataset.lmSuppressShortcuts = "true";
      label.append(words, field);
      field.className = "agentnb-text-input";
      field.autocomplete = "off";
      const shows = {
        description: (text) => {
          words.data = text;
        },
        disabled: (isDisabled) => {
          field.disabled = isDisabled;
        },
        value: (text) => {
          if (field.value !== text) field.value = text;
        },
      };
      const listeners = Object.entries(shows).map(([name, show]) => {
        const changed = () => show(model.get(name));
        changed();
        model.on(`change:${name}`, changed);
        return [`change:${name}`, changed];
      });
      const give = () => {
        if (field.value === model.get("value")) return;
        model.set("value", field.value);
        model.save_changes();
      };
      field.addEventListener("change", give);
      field.addEventListener("keydown", (event) => {
        event.stopPropagation(); // the notebook has keys of its own
        if (event.key === "Enter" && !event.isComposing) give();
      });
      el.append(label);
      return () => {
        for (const [event, listener] of listeners) model.off(event, listener);
      };
    },
  };
}

export default textField;
