"use strict";

const parameters = new URLSearchParams(location.search);
const service = parameters.get("service") ?? "http://127.0.0.1:8080";
const name = parameters.get("topic") ?? "news";
const url = `${service}/topics/${encodeURIComponent(name)}`;

const status = document.querySelector("#status");
const list = document.querySelector("#messages");
const form = document.querySelector("form");
const receipt = document.querySelector("output");

function add(text, kind) {
  const line = document.createElement("li");
  line.textContent = text; // never innerHTML: messages are what clients sent
  line.className = kind;
  list.append(line);
  return line;
}

document.querySelector("#name").textContent = name;

new Topic(
  url,
  (data, version) => {
    const line = add(typeof data === "string" ? data : JSON.stringify(data), "message");
    line.value = version;
  },
  (reason) => add(reason, "lost"),
  (open) => {
    status.dataset.state = open ? "open" : "waiting";
    status.textContent = open ? "connected" : "waiting for the service";
  },
);

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const answer = await fetch(url, { method: "POST", body: form.elements.text.value });
    const { version, detail } = await answer.json();
    receipt.textContent = answer.ok ? `published as ${version}` : detail;
    if (answer.ok) form.reset();
  } catch {
    receipt.textContent = "the service cannot be reached";
  }
});
