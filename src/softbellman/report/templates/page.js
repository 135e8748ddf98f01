"use strict";
// Without this script the page shows all operators, with bands unless there are many; it only adds the controls.
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

// The page of a study under way reloads itself, and is then as its reader left it.
const KEPT = `softbellman ${location.pathname}`;
const buttons = [...document.querySelectorAll("button[data-operator], button[data-view]")];
const nameOf = (button) => button.dataset.view ?? `operator ${button.textContent.trim()}`;
const focusable = [...document.querySelectorAll("button, summary, a")];
const scrollable = [...document.querySelectorAll(".table, .legend, .legend ul")];

function keep() {
  const pressed = Object.fromEntries(buttons.map((button) => [nameOf(button), isPressed(button)]));
  const opened = [...document.querySelectorAll("details")].map((details) => details.open);
  const scrolled = scrollable.map((part) => [part.scrollLeft, part.scrollTop]);
  const focused = focusable.indexOf(document.activeElement);
  sessionStorage.setItem(KEPT, JSON.stringify({ pressed, opened, scrolled, focused, place: [scrollX, scrollY] }));
}

function putBack({ pressed, opened, scrolled, focused, place }) {
  for (const button of buttons) {
    if (isPressed(button) !== (pressed[nameOf(button)] ?? isPressed(button))) button.click();
  }
  document.querySelectorAll("details").forEach((details, number) => (details.open = opened[number] ?? false));
  scrollable.forEach((part, number) => part.scrollTo(...(scrolled[number] ?? [0, 0])));
  focusable[focused]?.focus({ preventScroll: true });
  history.scrollRestoration = "manual";
  scrollTo(...place);
  addEventListener("load", () => scrollTo(...place));
}

try {
  const kept = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  if (kept) putBack(JSON.parse(kept));
} catch {} // a browser that stores nothing shows the page from its top

function reload() {
  if (document.hidden) return document.addEventListener("visibilitychange", reload, { once: true });
  try { keep(); } catch {}
  location.reload();
}

if (document.body.dataset.reload) setTimeout(reload, 1000 * document.body.dataset.reload);
