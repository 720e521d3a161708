(function () {
  "use strict";
  function data(id) { return JSON.parse(document.getElementById(id).textContent); }
  function all(selector, inside) { return Array.prototype.slice.call((inside || document).querySelectorAll(selector)); }
  var figures = data("figures"), places = data("places"), root = document.documentElement;
  var ids = Object.keys(figures), narrow = window.matchMedia("(max-width: 600px)");
  // Only what works without a network; by default there is also a button that uploads the figure.
  var options = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]]
  };

  // Colours of figures: they are written for the light theme.
  var dark = {
    "#ffffff": "#12161c", "#1f2933": "#e6e9ed", "#52606d": "#a3b1bf", "#d5dbe1": "#3a4550",
    "#e4e8ed": "#2a333c", "#f5f7fa": "#1b222a", "#9aa5b1": "#76838f"
  };
  function isDark() { return root.dataset.theme === "dark"; }
  function painted(value) {
    if (typeof value === "string") { return isDark() && dark[value] || value; }
    if (Array.isArray(value)) { return value.length && typeof value[0] !== "object" ? value : value.map(painted); }
    if (value === null || typeof value !== "object") { return value; }
    var copy = {};
    Object.keys(value).forEach(function (key) {
      copy[key] = key === "customdata" || key === "name" ? value[key] : painted(value[key]);
    });
    return copy;
  }
  function shown(id) {
    var figure = painted(figures[id]);
    if (narrow.matches) {
      figure.layout.margin = { l: Math.min(figure.layout.margin.l, 74), r: 14, t: figure.layout.margin.t, b: 46 };
      figure.layout.font.size = 12;
      Object.keys(figure.layout).forEach(function (key) {
        if (key.indexOf("axis") !== 1) { return; }
        var axis = figure.layout[key];
        if (axis.type === "log") { axis.dtick = 1; }
        if (key[0] === "x" && axis.type !== "log") { axis.nticks = 5; }
      });
      figure.data.forEach(function (trace) { if (trace.marker && trace.marker.size) { trace.marker.size = 10; } });
    }
    return figure;
  }
  function draw(id) {
    var figure = shown(id), element = document.getElementById(id), before = element.layout;
    if (before) {  // Keep the zoom, and what is switched off.
      Object.keys(figure.layout).forEach(function (key) {
        if (key.indexOf("axis") === 1 && before[key] && before[key].range) { figure.layout[key].range = before[key].range.slice(); }
      });
      element.data.forEach(function (trace, n) { if (trace.visible !== undefined) { figure.data[n].visible = trace.visible; } });
    }
    // A window that changes its size makes plotly forget the height; it then asks the element.
    element.style.height = figure.layout.height + "px";
    return Plotly.react(id, figure.data, figure.layout, options);
  }

  // Legends: a button for each name, which shows and hides what is called so.
  function sample(trace) {
    var mark = document.createElement("i"), line = trace.mode === "lines";
    var colour = line ? trace.line.color : trace.marker.color;
    if (line) {
      mark.className = trace.line.dash === "dot" ? "line dot" : "line";
      mark.style.borderTopColor = colour;
    } else {
      mark.style.background = trace.marker.pattern
        ? "repeating-linear-gradient(135deg, " + trace.marker.pattern.fgcolor + " 0 2px, " + trace.marker.pattern.bgcolor + " 2px 5px)"
        : colour;
      if (trace.type === "scatter") { mark.style.borderRadius = "50%"; }
    }
    return mark;
  }
  function legend(id) {
    var list = document.querySelector(".legend[data-of='" + id + "']"), element = document.getElementById(id);
    var was = {};
    all("button", list).forEach(function (b) { was[b.textContent] = b.getAttribute("aria-pressed"); });
    list.textContent = "";
    var names = {};
    painted(figures[id]).data.forEach(function (trace, n) {
      if (names[trace.name]) { names[trace.name].push(n); return; }
      var mine = names[trace.name] = [n], item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", was[trace.name] || "true");
      button.appendChild(sample(trace));
      button.appendChild(document.createTextNode(trace.name));
      button.addEventListener("click", function () {
        var on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        Plotly.restyle(element, { visible: on }, mine);
      });
      item.appendChild(button);
      list.appendChild(item);
    });
  }

  // The C and the script: they open at the kernel's function; a bar that is clicked marks its lines.
  function scrollTo(pane, row, above) {
    pane.scrollTop = row.offsetTop - pane.firstElementChild.offsetTop - above;
    pane.scrollLeft = 0;
  }
  function mark(pane, lines) {
    all("span.on", pane).forEach(function (line) { line.classList.remove("on"); });
    var rows = pane.firstElementChild.children;
    (lines || []).forEach(function (number) { rows[number - 1].classList.add("on"); });
    if (lines && lines.length && !pane.hidden) {
      scrollTo(pane, rows[lines[0] - 1], pane.clientHeight / 3);
    }
  }
  var picked = null;
  function pick(point) {
    picked = point;
    var keys = { c: point[1], script: point[2] }, found = false;
    all(".source pre").forEach(function (pane) {
      var lines = places[pane.dataset.text][keys[pane.dataset.text]];
      found = found || (pane.dataset.text === "c" && lines !== undefined);
      mark(pane, lines);
    });
    document.getElementById("picked").textContent = point[0].split("<br>").slice(0, 3).join("; ").replace(/<[^>]*>/g, "")
      + (found ? "" : ". It has no statement of its own in the C.");
  }
  function open(pane) {
    var row = pane.firstElementChild.children[Number(pane.dataset.opening) - 1];
    if (row) { scrollTo(pane, row, -8); }  // The line above it is hidden, in spite of the padding.
  }
  function tabs() {
    var buttons = all(".source .switch button");
    buttons.forEach(function (button) {
      button.addEventListener("click", function () {
        buttons.forEach(function (b) { b.setAttribute("aria-pressed", String(b === button)); });
        all(".source pre").forEach(function (pane) { pane.hidden = pane.dataset.text !== button.dataset.text; });
        if (picked) { pick(picked); }
      });
    });
  }

  function theme(name) { root.dataset.theme = name; document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark"; }
  var prefers = window.matchMedia("(prefers-color-scheme: dark)");
  theme(prefers.matches ? "dark" : "light");
  function redraw() { ids.forEach(legend); return Promise.all(ids.map(draw)); }
  prefers.addEventListener("change", function () { theme(prefers.matches ? "dark" : "light"); redraw(); });
  narrow.addEventListener("change", redraw);
  document.getElementById("theme").addEventListener("click", function () { theme(isDark() ? "light" : "dark"); redraw(); });

  redraw().then(function () {
    // The timeline, the banks and the memory map show the same cycles.
    var linked = ["timeline", "memory", "banks"].filter(function (id) { return figures[id]; })
      .map(function (id) { return document.getElementById(id); });
    function same(one, other) {
      var a = one.layout.xaxis.range, b = other.layout.xaxis.range;
      return a[0] === b[0] && a[1] === b[1];
    }
    linked.forEach(function (from) {
      from.on("plotly_relayout", function () {
        linked.forEach(function (to) {
          if (!same(from, to)) { Plotly.relayout(to, { "xaxis.range": from.layout.xaxis.range.slice() }); }
        });
      });
    });
    ["timeline", "blocks"].filter(function (id) { return figures[id]; }).forEach(function (id) {
      document.getElementById(id).on("plotly_click", function (event) {
        var point = event.points[0].customdata;
        if (Array.isArray(point)) { pick(point); }
      });
    });
    // A chip that is clicked is marked in every figure with such a mark, and in the table.
    var marked = ids.filter(function (id) { return id === "chips" || id.indexOf("front_") === 0; });
    function choose(number) {
      marked.forEach(function (id) {
        var at = places.chips[number][id], last = figures[id].data.length - 1;
        var mark = figures[id].data[last];  // Kept where the figure is drawn anew.
        mark.x = at[0] || figures[id].data[0].x;
        mark.y = at[1];
        Plotly.restyle(id, { x: [mark.x], y: [mark.y] }, [last]);
      });
      var chosen = document.getElementById("chosen"), own = places.chips[number].kernels;
      chosen.hidden = false;
      chosen.querySelector("h3").textContent = places.chips[number].name;
      chosen.querySelector("p").hidden = own.length > 0;
      var list = chosen.querySelector("ul");
      list.textContent = "";
      own.forEach(function (kernel) {
        var item = document.createElement("li"), link = document.createElement("a");
        link.textContent = kernel[0];
        link.href = kernel[1];
        item.appendChild(link);
        list.appendChild(item);
      });
      var table = document.getElementById("table-chips"), rows = all("tbody tr", table);
      table.dataset.numbers.split(" ").forEach(function (n, row) {
        rows[row].classList.toggle("on", n === number);
      });
    }
    marked.concat(figures.layers && places.chips ? ["layers"] : []).forEach(function (id) {
      document.getElementById(id).on("plotly_click", function (event) {
        var point = event.points[0].customdata;
        if (Array.isArray(point) && places.chips[point[1]]) { choose(point[1]); }
      });
    });
    tabs();
    all(".source pre").slice(0, 1).forEach(open);
    var buttons = all("button[data-end]");
    buttons.forEach(function (button) {
      button.addEventListener("click", function () {
        buttons.forEach(function (b) { b.setAttribute("aria-pressed", String(b === button)); });
        Plotly.relayout(linked[0], { "xaxis.range": [0, Number(button.dataset.end)] });
      });
    });
    document.body.dataset.ready = "yes";
  });
})();
