// Lets the keyboard reach every program and table that is wider than its place, to move it. The theme does so for programs
// alone, and only where there is a pointer; where there is none it takes the mark away again, as soon as it has measured.
// The theme's landmark around the button that copies a program is none: a page with twenty programs has one navigation.
document$.subscribe(() => {
  const mark = (region) => {
    const wanted = region.scrollWidth > region.clientWidth;
    if (wanted !== region.hasAttribute("tabindex"))
      wanted ? region.setAttribute("tabindex", "0") : region.removeAttribute("tabindex");
  };
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => mark(target)));
  const marked = new MutationObserver((changes) => changes.forEach(({ target }) => mark(target)));
  for (const buttons of document.querySelectorAll(".md-code__nav")) buttons.setAttribute("role", "presentation");
  for (const region of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap")) {
    resized.observe(region);
    marked.observe(region, { attributeFilter: ["tabindex"] });
  }
});
