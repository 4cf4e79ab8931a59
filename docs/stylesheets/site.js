// What assistive technology misses in the theme: names of the search and of the code buttons, a
// focus for tables that scroll, and table headers without text.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  const name = () => {
    document.querySelectorAll(".md-code__nav").forEach((nav, place) => nav.setAttribute("aria-label", `Code block ${place + 1}`));
    document.querySelectorAll(".md-typeset__scrollwrap, .highlight pre > code").forEach((part) => { part.tabIndex = 0; });
  };
  new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
  name();
  for (const header of document.querySelectorAll("th:empty")) {
    header.replaceWith(document.createElement("td"));
  }
});
