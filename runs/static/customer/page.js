// The customer's page: follows the request without a reload, says aloud what changed, and looks at files before they go.
"use strict";
(() => {
  const EVERY_MS = 4000, SLOW_MS = 30000, MOST_MS = 60000, MAX_BYTES = 5 * 1024 * 1024, MAX_FILES = 5;
  const main = document.getElementById("follow");
  let timer = 0, wait = EVERY_MS, quiet = 0;

  const local = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) time.textContent = at.toLocaleString([], { dateStyle: "long", timeStyle: "short" });
    }
  };

  const words = (id) => (document.getElementById(id)?.textContent || "").trim();

  // What somebody is writing stays: its form goes only where nothing is in it.
  const free = () => {
    const text = document.querySelector("#reply textarea"), files = document.getElementById("files");
    return !(text && text.value.trim()) && !(files && files.files.length) && !document.activeElement?.closest("#write form, #thumb");
  };

  const put = (fresh, id) => {
    const now = document.getElementById(id), next = fresh.getElementById(id);
    if (next) local(next);
    if (now && next) now.replaceWith(document.importNode(next, true));
    else if (now) now.remove();
    else if (next) document.getElementById("talk").before(document.importNode(next, true));
  };

  const show = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html"), next = fresh.getElementById("follow");
    if (!next) return;
    const before = words("headline") + words("message"), way = ["open", "asked", "over"];
    const moved = way.some((name) => main.dataset[name] !== next.dataset[name]);
    put(fresh, "state");
    put(fresh, "talk");
    if (moved && free()) {
      put(fresh, "write");
      put(fresh, "thumb");
      for (const name of way) main.dataset[name] = next.dataset[name];
      guard();
    }
    main.dataset.mark = next.dataset.mark;
    document.title = fresh.title;
    const said = words("headline") + words("message");
    if (said !== before) document.getElementById("announce").textContent = `${words("headline")}. ${words("message")}`;
  };

  const look = async () => {
    timer = 0;
    try {
      const url = `${main.dataset.here}?since=${encodeURIComponent(main.dataset.mark)}`;
      const answer = await fetch(url, { cache: "no-store", credentials: "omit", redirect: "error" });
      if (answer.status === 200) { show(await answer.text()); quiet = 0; } else quiet += 1;
      if (answer.status === 404) return;
      wait = answer.status === 429 ? Number(answer.headers.get("Retry-After") || 10) * 1000 : quiet > 60 ? SLOW_MS : EVERY_MS;
    } catch {
      wait = Math.min(wait * 2, MOST_MS);
    }
    next();
  };

  const next = () => {
    if (main.dataset.over === "1" || document.hidden || timer) return;
    timer = setTimeout(look, wait);
  };

  const guard = () => {
    const form = document.getElementById("reply"), files = document.getElementById("files");
    if (!form || !files) return;
    const fault = document.getElementById("files-fault");
    form.addEventListener("submit", (event) => {
      const chosen = [...files.files];
      const why = chosen.length > MAX_FILES ? `At most ${MAX_FILES} files at once.`
        : chosen.some((file) => file.size > MAX_BYTES) ? "A file is larger than 5 MB."
        : chosen.some((file) => !file.size) ? "A file is empty." : "";
      fault.hidden = !why;
      fault.textContent = why;
      if (why) { event.preventDefault(); files.focus(); }
    });
  };

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    timer = 0;
    if (!document.hidden && main.dataset.over !== "1") look();
  });
  local(document);
  guard();
  document.getElementById("sent")?.focus();
  next();
})();
