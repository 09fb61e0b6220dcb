// Asks for the page again while it is seen, and changes what differs: nothing flickers, and where the reader is stays.
"use strict";

const LONGEST = 30_000; // milliseconds for an answer
let every = 1; // second, until the first answer
let tag = "";
let timer = 0;

/** Makes `old` what `fresh` is. What has an id is found by it, wherever it stands now. */
function change(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name); // the reader opens details
  }
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const same = next.id ? known.get(next.id) : at && !at.id && at;
    if (!same) {
      old.insertBefore(next, at);
      continue;
    }
    if (same !== at) old.insertBefore(same, at);
    at = same.nextSibling;
    change(same, next);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Says whether nobody answers. */
function away(is) {
  const notice = document.getElementById("away");
  if (notice.hidden === is) notice.hidden = !is;
}

async function look() {
  clearTimeout(timer);
  const log = document.querySelector("nav[data-follow]");
  if (!document.hidden && (!log || getSelection().isCollapsed)) {
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const signal = AbortSignal.timeout(LONGEST);
      const answer = await fetch(location.href, { headers, signal, cache: "no-store" });
      every = answer.headers.get("Tf-Launcher-Every") ?? every;
      if (answer.status !== 304) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (!fresh.querySelector("nav")) throw new Error(answer.statusText);
        const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 8;
        tag = answer.headers.get("ETag");
        document.title = fresh.title;
        change(document.body, fresh.body);
        if (log && atEnd) scrollTo(0, document.documentElement.scrollHeight);
      }
      away(false);
    } catch {
      away(true);
    }
  }
  timer = setTimeout(look, 1000 * every);
}

document.addEventListener("visibilitychange", () => document.hidden || look());
timer = setTimeout(look, 1000 * every);
