// What the tests ask of a page: places of its texts, and what is wrong with them.
(() => {
  const drawn = () =>
    [...document.querySelectorAll(".figure svg text")]
      .filter((e) => e.textContent.trim() && !e.closest(".modebar, .hoverlayer"));

  // Every piece of text, with its place on the page; tables and code scroll in boxes of their own.
  const texts = () => {
    const html = ".legend button, h1, h2, h3, p, nav a, .switch button, .card div, #theme, dt, dd";
    const found = [];
    for (const e of [...drawn(), ...document.querySelectorAll(html)]) {
      const range = document.createRange();
      range.selectNodeContents(e);
      // Of the text: a heading's own box is as wide as the page.
      const r = (e.closest("svg") ? e : range).getBoundingClientRect(), said = e.textContent.trim();
      if (r.width && r.height && said && !(e.closest("nav") && e.tagName !== "A")) {
        const place = { left: r.left, right: r.right, top: r.top, bottom: r.bottom };
        found.push({ said, place, sticky: Boolean(e.closest("nav, .source")) });
      }
    }
    return found;
  };

  const overlaps = () => {
    const all = texts(), found = [];
    all.forEach((a, i) => all.slice(i + 1).forEach((b) => {
      // The bar of links lies over whatever scrolls below it.
      if (a.sticky !== b.sticky) return;
      const wide = Math.min(a.place.right, b.place.right) - Math.max(a.place.left, b.place.left);
      const high = Math.min(a.place.bottom, b.place.bottom) - Math.max(a.place.top, b.place.top);
      // Boxes have room above and below the letters, which lines close to each other share.
      if (wide > 1 && high > 3) found.push(a.said.slice(0, 30) + " | " + b.said.slice(0, 30));
    }));
    return found;
  };

  const outside = () =>
    texts().filter((t) => t.place.left < 0 || t.place.right > innerWidth).map((t) => t.said);

  const light = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((v) => {
      const c = v / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) =>
    (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);

  // Texts with less contrast to the page than WCAG 2 asks for.
  const pale = () => {
    const html = "h1, h1 span, h2, p, .card div, nav a, th, td, pre, pre i, .legend button";
    const back = getComputedStyle(document.body).backgroundColor;
    const found = [
      ...drawn().map((e) => [e.textContent, getComputedStyle(e).fill]),
      ...[...document.querySelectorAll(html)].map((e) => [e.textContent, getComputedStyle(e).color]),
    ];
    return found
      .map(([said, colour]) => said.slice(0, 30) + " " + ratio(colour, back).toFixed(1))
      .filter((said) => Number(said.split(" ").pop()) < 4.5);
  };

  window.looks = { overlaps, outside, pale };
})();
