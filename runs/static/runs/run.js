// Follows a living run on its page: asks for the page's inside, and puts in what changed. The page is whole without it.
"use strict";

const PAUSES_MS = [1000, 1000, 2000, 3000, 5000];
const FOLLOW_FOR_MS = 30 * 60 * 1000;

// What a reader had opened stays open, and what he has under his hands stays where it is.
function opened(part) {
  return [...part.querySelectorAll("details")].map((details) => details.open);
}

function put(old, fresh) {
  const open = opened(old);
  fresh.querySelectorAll("details").forEach((details, number) => {
    if (open[number]) details.open = true;
  });
  const at = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  old.replaceWith(fresh);
  if (at) [...fresh.querySelectorAll("a")].find((link) => link.getAttribute("href") === at)?.focus();
}

function show(whole, html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const seen = new Map([...whole.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
  const body = whole.querySelector(".body");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const old = seen.get(part.dataset.part);
    const node = document.importNode(part, true);
    if (!old) body.insertBefore(node, body.querySelector("[data-part=timeline]"));
    else if (!old.isEqualNode(node)) put(old, node);
  }
}

async function follow(whole) {
  const began = Date.now();
  let quiet = 0;
  say(whole, "This page follows the run by itself.");
  while (Date.now() - began < FOLLOW_FOR_MS) {
    await new Promise((done) => setTimeout(done, PAUSES_MS[Math.min(quiet, PAUSES_MS.length - 1)]));
    quiet += 1;
    if (document.hidden) continue;
    try {
      const address = `${whole.dataset.follow}?seen=${encodeURIComponent(whole.dataset.stamp)}`;
      const answer = await fetch(address, { credentials: "same-origin", redirect: "error" });
      if (answer.status !== 200) continue;
      const now = await answer.json();
      show(whole, now.html);
      whole.dataset.stamp = now.stamp;
      quiet = 0;
      if (now.rest) return;
      say(whole, "This page follows the run by itself.");
    } catch (error) {
      // The network or the site is away for a moment: ask again.
    }
  }
  say(whole, "No longer following the run: reload the page to see it now.");
}

function say(whole, words) {
  const hint = whole.querySelector("[data-hint]");
  if (hint) hint.textContent = words;
}

for (const whole of document.querySelectorAll("[data-follow][data-lives='1']")) follow(whole);
