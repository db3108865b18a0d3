// The console's only script: clocks that tick, one POST a decision, and a poll that follows a run after it.
// Everything here is a convenience: the page is whole without it, and the server decides.
"use strict";

const TICK_MS = 15000;
const POLL_MS = [1000, 1000, 2000, 2000, 3000, 5000];
const POLL_FOR_MS = 15 * 60 * 1000;
const SOON_S = 30 * 60;

function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// The server's clock counts, not the reader's: the page carries the moment it was made.
const made = document.querySelector("[data-now]");
const skew = made ? Date.parse(made.dataset.now) - Date.now() : 0;

function tick() {
  const now = Date.now() + skew;
  for (const time of document.querySelectorAll("time[data-until]")) {
    const left = (Date.parse(time.dateTime) - now) / 1000;
    time.textContent = left > 0 ? `in ${duration(left)}` : "time is up";
    time.classList.toggle("soon", left < SOON_S);
  }
  for (const time of document.querySelectorAll("time[data-since]")) {
    const ago = time.closest("#changelist") ? " ago" : "";
    time.textContent = duration((now - Date.parse(time.dateTime)) / 1000) + ago;
  }
}

// What is missing before a decision is sent; the server asks for the same.
function missing(form, decision) {
  const { reason, reason_code: code, attestation } = form.elements;
  const chosen = code.selectedOptions[0];
  const fits = !code.value || chosen.dataset.decision === decision;
  const told = chosen.dataset.told || reason.value.trim();
  code.setCustomValidity(fits ? "" : `This is no reason to ${decision}.`);
  reason.setCustomValidity(decision === "reject" && fits && !told ? "A rejection needs a reason." : "");
  if (attestation) {
    const stated = decision !== "approve" || attestation.checked;
    attestation.setCustomValidity(stated ? "" : "An approval needs your statement.");
  }
}

function guard(form) {
  const { reason_code: code } = form.elements;
  const clear = () => [...form.elements].forEach((field) => field.setCustomValidity && field.setCustomValidity(""));
  form.addEventListener("input", clear);
  for (const button of form.querySelectorAll("button[name=decision]")) {
    button.addEventListener("click", () => missing(form, button.value));
  }
  const hint = form.querySelector("[data-told]:not(option)");
  const rule = hint.textContent;
  code.addEventListener("change", () => {
    const { told, decision } = code.selectedOptions[0].dataset;
    if (told) hint.textContent = `Rejecting tells the customer: “${told}” Your words stay with staff.`;
    else if (decision === "approve") hint.textContent = "Approving tells the customer no reason.";
    else hint.textContent = code.value ? "Rejecting tells the customer your words." : rule;
    hint.classList.toggle("told-now", Boolean(code.value));
  });
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "1";
    form.classList.add("sent");
  });
  // A page taken from the browser's history is asked of the server again: it may be long decided.
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) window.location.reload();
  });
}

// Forms without a decision: one POST each, and a page from the browser's history is asked of the server again.
function once(form) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
    form.classList.add("sent");
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) window.location.reload();
  });
}

function cell(name, text, className) {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function show(box, data) {
  const headline = box.querySelector("[data-headline]");
  if (headline.textContent !== data.headline) headline.textContent = data.headline;
  headline.className = `badge badge-${data.tone}`;
  box.querySelector("[data-rows]").replaceChildren(...data.rows.map(([label, value]) => {
    const row = document.createElement("div");
    row.append(cell("dt", label), cell("dd", value));
    return row;
  }));
  const body = document.querySelector("[data-timeline]");
  if (body && data.timeline.length) {
    body.replaceChildren(...data.timeline.map(([offset, type, summary]) => {
      const row = document.createElement("tr");
      const kind = cell("td", "", "nowrap");
      kind.append(cell("code", type));
      row.append(cell("td", offset, "nowrap quiet"), kind, cell("td", summary));
      return row;
    }));
  }
}

async function follow(box) {
  const began = Date.now();
  const hint = box.querySelector("[data-hint]");
  for (let turn = 0; Date.now() - began < POLL_FOR_MS; turn += 1) {
    await new Promise((done) => setTimeout(done, POLL_MS[Math.min(turn, POLL_MS.length - 1)]));
    if (document.hidden) continue;
    try {
      const answer = await fetch(box.dataset.progress, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) continue;
      const data = await answer.json();
      show(box, data);
      if (data.rest) {
        if (hint) hint.remove();
        return;
      }
    } catch (error) {
      // The network or the site is away for a moment: ask again.
    }
  }
  if (hint) hint.textContent = "No longer following the run: reload the page to see it now.";
}

tick();
setInterval(tick, TICK_MS);
for (const form of document.querySelectorAll("form[data-decision]")) guard(form);
for (const form of document.querySelectorAll("form[data-once]")) once(form);
for (const box of document.querySelectorAll("[data-progress][data-rest='0']")) follow(box);
