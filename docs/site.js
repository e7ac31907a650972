// Code and tables that are wider than the page can be scrolled by keys, and the search has a name.
"use strict";

addEventListener("load", () => {
  document.querySelector(".md-search").setAttribute("aria-label", "Search");
  const boxes = () => document.querySelectorAll("pre > code, .md-typeset__scrollwrap");
  const mend = (box) => {
    const wider = box.scrollWidth > box.clientWidth;
    if (wider && box.tabIndex !== 0) box.tabIndex = 0;
    if (!wider && box.hasAttribute("tabindex")) box.removeAttribute("tabindex");
  };
  // The theme does the same for code, but takes the mark away where there is no mouse.
  const marks = new MutationObserver((changes) => changes.forEach(({ target }) => mend(target)));
  const sizes = new ResizeObserver(() => boxes().forEach(mend));
  for (const box of boxes()) {
    marks.observe(box, { attributeFilter: ["tabindex"] });
    sizes.observe(box);
  }
});
