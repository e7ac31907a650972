// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Figures over time: values under the pointer, and zoom along the axis of time.  Values are read
// from the curves themselves; data-panes (panes.py) tells what the axes of each panel mean.
"use strict";

{
  const made = (name, attributes, parent) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    return parent.appendChild(element);
  };
  const STEP = /([A-Za-z])\s*(?:(-?[\d.e+-]+)\s+(-?[\d.e+-]+))?/g;

  // A path whose x coordinates follow the axis of time.
  class Moving {
    constructor(path) {
      this.path = path;
      this.steps = [...path.getAttribute("d").matchAll(STEP)].map(([, letter, x, y]) =>
        x === undefined ? [letter] : [letter, parseFloat(x), parseFloat(y)]);
    }
    move(place) {
      const text = this.steps.map((step) =>
        step.length === 1 ? step[0] : `${step[0]} ${place(step[1]).toFixed(3)} ${step[2]}`);
      this.path.setAttribute("d", text.join(" "));
    }
    // y at an x of the whole figure; undefined where the curve has a gap.
    at(x) {
      let before;
      for (const step of this.steps) {
        if (step[0] === "L" && before && before[1] <= x && x < step[1]) {
          const share = (x - before[1]) / (step[1] - before[1]);
          return before[2] + share * (step[2] - before[2]);
        }
        before = step;
      }
      return undefined;
    }
  }

  class Pane {
    constructor(told, figure) {
      Object.assign(this, told);
      [this.left, this.top, this.width, this.height] = told.frame;
      const group = document.getElementById(told.id);
      const marked = `[id*="-moves-"] path`;
      this.moving = [...group.querySelectorAll(marked)].map((path) => new Moving(path));
      this.lines = told.curves.map(({ id, name }) => {
        const path = document.getElementById(id).querySelector("path");
        return { name, path, curve: this.moving.find((moving) => moving.path === path) };
      });
      this.ticks = [...group.querySelectorAll(`[id*="-xtick_"]`)].map((tick) => ({
        tick, x: parseFloat(tick.querySelector("use").getAttribute("x")),
        text: tick.querySelector("text"),
      }));
      this.rule = made("line", { y1: this.top, y2: this.top + this.height, class: "rule" }, figure);
    }
    has(x, y) {
      return x >= this.left && x <= this.left + this.width &&
        y >= this.top && y <= this.top + this.height;
    }
    value(y) {
      const share = 1 - (y - this.top) / this.height;
      const [low, high] = this.range;
      return this.log ? low * (high / low) ** share : low + share * (high - low);
    }
  }

  class OverTime {
    constructor(svg) {
      this.svg = svg;
      this.panes = JSON.parse(svg.dataset.panes).map((told) => new Pane(told, svg));
      this.whole = this.panes[0].time;
      this.shown = this.whole;
      this.choice = made("rect", { class: "choice" }, svg);
      this.box = document.createElement("div");
      this.box.className = "reading";
      this.box.setAttribute("role", "status");
      this.hint = document.createElement("p");
      this.hint.className = "save";
      svg.closest("figure").append(this.hint);
      svg.parentElement.after(this.box);
      svg.tabIndex = 0;
      svg.addEventListener("pointermove", (event) => this.moved(event));
      svg.addEventListener("pointerdown", (event) => this.pressed(event));
      svg.addEventListener("pointerup", (event) => this.released(event));
      svg.addEventListener("pointerleave", () => this.hide());
      svg.addEventListener("pointercancel", () => this.dropped());
      svg.addEventListener("lostpointercapture", () => this.from && this.dropped());
      svg.addEventListener("dblclick", () => this.zoom(this.whole));
      svg.addEventListener("keydown", (event) => this.key(event));
      svg.addEventListener("blur", () => this.hide());
      this.tell();
    }
    point(event) {
      const screen = this.svg.getScreenCTM().inverse();
      return new DOMPoint(event.clientX, event.clientY).matrixTransform(screen);
    }
    // Time at an x of a panel as it is shown, and the other way.
    time(pane, x) {
      const [from, to] = this.shown;
      return from + ((x - pane.left) / pane.width) * (to - from);
    }
    place(pane, time) {
      const [from, to] = this.shown;
      return pane.left + ((time - from) / (to - from)) * pane.width;
    }
    moved(event) {
      const { x, y } = this.point(event);
      const pane = this.from ? this.from.pane : this.panes.find((each) => each.has(x, y));
      if (!pane) return this.hide();
      const time = Math.min(Math.max(this.time(pane, x), this.shown[0]), this.shown[1]);
      if (this.from) this.choose(pane, this.from.time, time);
      this.read(pane, time);
    }
    pressed(event) {
      const { x, y } = this.point(event);
      const pane = this.panes.find((each) => each.has(x, y));
      if (!pane || event.button !== 0) return;
      event.preventDefault();
      this.svg.focus({ preventScroll: true });
      this.svg.setPointerCapture(event.pointerId);
      this.from = { pane, time: this.time(pane, x), x };
    }
    released(event) {
      if (!this.from) return;
      const { pane, time, x } = this.from;
      this.from = undefined;
      this.choice.removeAttribute("width");
      const end = this.point(event).x;
      if (Math.abs(end - x) < 4) return;
      const other = Math.min(Math.max(this.time(pane, end), this.shown[0]), this.shown[1]);
      this.zoom([Math.min(time, other), Math.max(time, other)]);
    }
    // A drag that ends without a choice: the browser has taken the pointer, to scroll the page say.
    dropped() {
      this.from = undefined;
      this.choice.removeAttribute("width");
      this.hide();
    }
    key(event) {
      const [from, to] = this.shown, length = to - from;
      const pane = this.pane || this.panes[0];
      const time = this.at === undefined ? from + length / 2 : this.at;
      const steps = { ArrowLeft: -0.01, ArrowRight: 0.01, PageUp: -0.1, PageDown: 0.1 };
      if (event.key in steps) {
        this.read(pane, Math.min(Math.max(time + steps[event.key] * length, from), to));
      } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        const next = this.panes.indexOf(pane) + (event.key === "ArrowUp" ? -1 : 1);
        if (!this.panes[next]) return;
        this.read(this.panes[next], time);
      } else if (event.key === "+" || event.key === "-") {
        const half = length * (event.key === "+" ? 0.25 : 1);
        this.zoom([Math.max(time - half, this.whole[0]), Math.min(time + half, this.whole[1])]);
        this.read(pane, time);
      } else if (event.key === "Escape") {
        this.zoom(this.whole);
      } else return;
      event.preventDefault();
    }
    choose(pane, one, other) {
      const [a, b] = [this.place(pane, one), this.place(pane, other)];
      const box = { x: Math.min(a, b), y: pane.top, width: Math.abs(b - a), height: pane.height };
      for (const key in box) this.choice.setAttribute(key, box[key]);
    }
    read(pane, time) {
      [this.pane, this.at] = [pane, time];
      for (const each of this.panes) {
        const x = this.place(each, time);
        each.rule.setAttribute("x1", x);
        each.rule.setAttribute("x2", x);
        each.rule.classList.add("on");
      }
      const [from, to] = this.whole;
      const x = pane.left + ((time - from) / (to - from)) * pane.width;
      const head = document.createElement("b");
      head.textContent = [pane.title, pane.of, `at ${this.number(time)} s`].filter(Boolean).join(", ");
      const lines = pane.lines.map(({ name, path, curve }) => {
        const line = document.createElement("div"), sign = document.createElement("i");
        const y = curve.at(x);
        sign.style.background = getComputedStyle(path).stroke;
        const value = y === undefined ? "–" : `${this.number(pane.value(y))} ${pane.unit}`;
        line.append(sign, `${name}: ${value}`);
        return line;
      });
      this.box.replaceChildren(head, ...lines);
      this.box.classList.add("on");
      this.put(pane, time);
    }
    // The box stands beside the line, in the figure's own coordinates.
    put(pane, time) {
      const outer = this.box.offsetParent.getBoundingClientRect();
      const screen = this.svg.getScreenCTM();
      const at = new DOMPoint(this.place(pane, time), pane.top).matrixTransform(screen);
      const x = at.x - outer.left, wide = this.box.offsetWidth;
      const left = x + 12 + wide <= outer.width ? x + 12 : x - 12 - wide;
      this.box.style.left = `${Math.max(4, Math.min(left, outer.width - wide - 4))}px`;
      this.box.style.top = `${at.y - outer.top + 4}px`;
    }
    hide() {
      if (this.from) return;
      [this.pane, this.at] = [];
      this.box.classList.remove("on");
      for (const pane of this.panes) pane.rule.classList.remove("on");
    }
    zoom([from, to]) {
      const [begin, end] = this.whole;
      if (!(to - from > (end - begin) / 1e4)) return;
      this.shown = [from, to];
      const scale = (end - begin) / (to - from);
      for (const pane of this.panes) {
        const place = (x) => pane.left + (x - pane.left) * scale -
          ((from - begin) / (to - from)) * pane.width;
        for (const moving of pane.moving) moving.move(place);
        this.mark(pane);
      }
      this.hide();
      this.tell();
    }
    // As many round numbers as there were ticks, at most.
    mark(pane) {
      const [from, to] = this.shown;
      const least = (to - from) / Math.max(pane.ticks.length, 2);
      const decade = 10 ** Math.floor(Math.log10(least));
      const step = [1, 2, 5, 10].map((n) => n * decade).find((size) => size > least);
      const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      const first = Math.ceil(from / step - 1e-9);
      pane.ticks.forEach(({ tick, x, text }, index) => {
        const time = (first + index) * step;
        tick.style.display = time <= to * (1 + 1e-9) ? "" : "none";
        tick.setAttribute("transform", `translate(${this.place(pane, time) - x} 0)`);
        if (text) text.textContent = time.toFixed(digits);
      });
    }
    tell() {
      const all = this.shown[0] === this.whole[0] && this.shown[1] === this.whole[1];
      const part = this.shown.map((time) => this.number(time)).join(" to ");
      this.hint.textContent = all
        ? "Point at a curve for its values, drag to zoom (keys: arrows, + and −)."
        : `Shown: ${part} s. Double click, or Escape: the whole time.`;
    }
    number(value) {
      const size = Math.abs(value);
      return size >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
    }
  }

  for (const svg of document.querySelectorAll("svg[data-panes]")) new OverTime(svg);
}
