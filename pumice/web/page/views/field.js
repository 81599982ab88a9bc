/** One field of a form: its label, its input, and below it what is wrong with what was written. */

import { h } from "../dom.js";
import { amount } from "../quantity.js";

const WRONG = "An amount is wanted, such as 2, 500m or 64Gi.";

/** Return the input, and its part of the form; type `amount` takes quantities of Kubernetes, none below 0. */
export function field({ name, label, type, ...attributes }) {
  const wrong = h("span", { class: "bad", id: `wrong-${name}`, role: "alert", hidden: true });
  const input = h("input", { name, type: type === "amount" ? "text" : type, autocomplete: "off", spellcheck: "false",
    "aria-describedby": wrong.id, ...attributes });

  const tell = () => {
    wrong.textContent = input.validationMessage;
    wrong.hidden = !input.validationMessage;
    input.setAttribute("aria-invalid", String(!wrong.hidden));
  };
  const check = () => {
    const text = input.value.trim();
    if (type === "amount") input.setCustomValidity(!text || amount(text) >= 0 ? "" : WRONG);
  };
  // An error that is told goes as soon as it is mended; a new one is told once the field is left.
  input.addEventListener("input", () => { check(); if (!wrong.hidden) tell(); });
  input.addEventListener("change", tell);
  input.addEventListener("invalid", (event) => {
    event.preventDefault(); // the browser's own bubble, which goes by itself
    tell();
    if (input.form.querySelector("input:invalid") === input) input.focus();
  });
  check();
  return { input, element: h("div", { class: "field" }, h("label", {}, label, input), wrong) };
}
