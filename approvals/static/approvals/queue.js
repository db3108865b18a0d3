// Keys for the queue. Focus really moves, so that a screen reader follows; no key approves or rejects.
// A convenience: every key does what a link or a button of the page does.
"use strict";

const table = document.querySelector("#result_list");
const rows = table ? [...table.tBodies[0].rows] : [];
const keys = document.querySelector("details.keys");
const KEPT = "queue-row";

const opener = (row) => row && row.querySelector("th a");
const current = () => rows.indexOf(document.activeElement && document.activeElement.closest("#result_list tbody tr"));

function go(to) {
  const link = opener(rows[Math.max(0, Math.min(rows.length - 1, to))]);
  if (!link) return;
  link.focus();
  link.scrollIntoView({ block: "nearest" });
}

const typing = (element) => element.isContentEditable || element.matches("input:not([type=checkbox]), textarea, select");

const acts = {
  j: () => go(current() + 1),
  k: () => go(current() < 0 ? 0 : current() - 1),
  o: () => { const link = opener(rows[current()]); if (link) link.click(); },
  c: () => {
    const button = rows[current()] && rows[current()].querySelector("button[data-key=c]");
    if (button) button.click();
  },
  "/": () => { const bar = document.querySelector("#searchbar"); bar.focus(); bar.select(); },
  "?": () => { keys.open = !keys.open; keys.querySelector("summary").focus(); },
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.activeElement.id === "searchbar") document.activeElement.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat && event.key === "c") return;
  if (typing(event.target) || !(event.key in acts)) return;
  event.preventDefault();
  acts[event.key]();
});

// After a claim the list comes anew: the reader is put back on the row he was on.
for (const button of document.querySelectorAll("#result_list button.hold")) {
  button.addEventListener("click", () => {
    const link = opener(button.closest("tr"));
    if (link) sessionStorage.setItem(KEPT, new URL(link.href).pathname);
  });
}
const kept = sessionStorage.getItem(KEPT);
sessionStorage.removeItem(KEPT);
if (kept) {
  const at = rows.findIndex((row) => opener(row) && new URL(opener(row).href).pathname === kept);
  if (at >= 0) go(at);
}

// One open menu at a time, and Escape closes it.
document.addEventListener("toggle", (event) => {
  if (!event.target.open || !event.target.matches(".snooze")) return;
  for (const other of document.querySelectorAll("details.snooze[open]")) if (other !== event.target) other.open = false;
}, true);
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && document.querySelector("details.snooze[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});
