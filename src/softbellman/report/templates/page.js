"use strict";
// Without this script the page shows all operators, with bands; it only adds the controls.
const operators = [...document.querySelectorAll("button[data-operator]")];
const parts = (number) => document.querySelectorAll(`svg [id*=".o${number}."]`);

function press(button, on) {
  button.setAttribute("aria-pressed", String(on));
}

function isPressed(button) {
  return button.getAttribute("aria-pressed") === "true";
}

function show(button, on) {
  const number = button.dataset.operator;
  press(button, on);
  for (const part of parts(number)) part.classList.toggle("off", !on);
  for (const part of document.querySelectorAll(`tr[data-operator="${number}"], .film[data-operator="${number}"]`)) {
    part.classList.toggle("off", !on);
  }
}

function highlight(chosen) {
  for (const button of operators) {
    const dim = chosen !== null && isPressed(chosen) && button !== chosen;
    for (const part of parts(button.dataset.operator)) part.classList.toggle("dim", dim);
  }
}

for (const button of operators) {
  button.disabled = false;
  button.title = "show or hide in every figure";
  button.addEventListener("click", () => {
    show(button, !isPressed(button));
    highlight(null);
  });
  button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && highlight(button));
  button.addEventListener("pointerleave", () => highlight(null));
}

for (const button of document.querySelectorAll("button[data-view]")) {
  document.body.classList.toggle(`show-${button.dataset.view}`, isPressed(button));
  button.addEventListener("click", () => {
    press(button, !isPressed(button));
    document.body.classList.toggle(`show-${button.dataset.view}`, isPressed(button));
  });
}

for (const button of document.querySelectorAll("button[data-all]")) {
  button.addEventListener("click", () => operators.forEach((each) => show(each, button.dataset.all === "true")));
}

document.querySelector(".views").hidden = false;
