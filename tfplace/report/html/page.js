// The page's script: the zoomable schedule and the copy button. No libraries.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- texts ----
  const short = (number) => Number(number < 999.5 ? number.toPrecision(3) : number.toFixed(0));
  function secondsText(seconds) {
    const [factor, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    return `${short(seconds * factor)} ${unit}`;
  }
  function bytesText(count) {
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (count >= 1024 && unit < 3) { count /= 1024; unit += 1; }
    return `${short(count)} ${units[unit]}`;
  }
  function tell(target, title, rest) {
    target.replaceChildren();
    const bold = document.createElement("b");
    bold.textContent = title;
    target.append(bold, ` ${rest}`);
  }

  // ---- the schedule ----
  function timeline(canvas, told, data) {
    const paint = canvas.getContext("2d");
    const tick = data.seconds / data.ticks;
    const items = { op: [], transfer: [], wait: [], run: [] };
    const rows = layOut(data);
    let from = 0, to = data.ticks, chosen = null, row = 0, colours = {}, stripes = {};
    let width = 0, gutter = 0, isByShard = data.shards > 0;

    // Of an op or a transfer: its scope and the last part of its name.
    const partsOf = ({ kind, index }) => data[`${kind}s`].name[index];
    const nameOf = (item) => data.scopes[partsOf(item)[0]] + partsOf(item)[1];
    // "conv" of "block/conv/shard_2".
    function labelOf(item) {
      const [scope, last] = partsOf(item);
      return /^shard_\d+(:\d+)?$/.test(last) ? data.scopes[scope].split("/").at(-2) || last : last;
    }
    // The shard that an op works for, or that a transfer's op does; -1 for what is whole.
    function shardOf({ kind, index }) {
      const op = kind === "transfer" ? data.transfers.cause[index] : kind === "op" ? index : -1;
      return data.shards && op >= 0 ? data.ops.shard[op] : -1;
    }
    function colourOf(item, row) {
      if (!isByShard) return colours.device[row.device];
      const shard = shardOf(item);
      return colours.shard[shard < 0 ? 0 : 1 + shard % (colours.shard.length - 1)];
    }
    const countOf = (run) => `${data.runs[run.index][3]} short ones`;
    const xOf = (time) => gutter + (width - gutter) * (time - from) / (to - from);
    const timeAt = (x) => from + (to - from) * (x - gutter) / (width - gutter);

    // Items of a row: {start, end, kind, index}, in the order of time; `items` has them by index.
    function layOut({ rows, ops, transfers, waits, runs }) {
      const made = rows.map((row) => ({ ...row, items: [] }));
      const add = (row, start, end, kind, index) => {
        items[kind][index] = { row, start, end, kind, index };
        made[row].items.push(items[kind][index]);
      };
      ops.start.forEach((start, i) => add(ops.row[i], start, ops.end[i], "op", i));
      transfers.start.forEach((start, i) => add(transfers.row[i], start, transfers.end[i], "transfer", i));
      waits.forEach(([row, start, end], i) => add(row, start, end, "wait", i));
      runs.forEach(([row, start, end], i) => add(row, start, end, "run", i));
      let y = 22;
      made.forEach((row, i) => {
        row.items.sort((a, b) => a.start - b.start || a.end - b.end);
        const isFirst = row.kind === "device" && row.label;
        row.height = isFirst ? 24 : row.kind === "device" ? 14 : 13;
        if (isFirst && i) y += 6;
        if (row.kind === "link" && (!i || made[i - 1].kind !== "link")) y += 10;
        row.y = y;
        y += row.height + 2;
      });
      made.height = y + 4;
      return made;
    }

    function readColours() {
      colours = { fg: css("--fg"), muted: css("--muted"), line: css("--line"), track: css("--track"),
        card: css("--card"), focus: css("--focus"), device: data.devices.map((d) => css(`--d${d.colour}`)),
        shard: Array.from({ length: 9 }, (_, number) => css(`--d${number}`)) };
      stripes = [...colours.device, colours.muted].map((colour) => {
        const tile = document.createElement("canvas");
        tile.width = tile.height = 7;
        const brush = tile.getContext("2d");
        brush.fillStyle = colours.card;
        brush.fillRect(0, 0, 7, 7);
        brush.strokeStyle = colour;
        brush.lineWidth = 2.2;
        for (const shift of [-7, 0, 7]) {
          brush.beginPath();
          brush.moveTo(shift - 1, 8);
          brush.lineTo(shift + 8, -1);
          brush.stroke();
        }
        return paint.createPattern(tile, "repeat");
      });
    }

    function resize() {
      const ratio = window.devicePixelRatio || 1;
      width = canvas.clientWidth;
      gutter = width < 560 ? 92 : 132;
      canvas.style.height = `${rows.height}px`;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(rows.height * ratio);
      paint.setTransform(ratio, 0, 0, ratio, 0, 0);
      draw();
    }

    function draw() {
      paint.clearRect(0, 0, width, rows.height);
      paint.textBaseline = "middle";
      drawAxis();
      rows.forEach((row) => {
        paint.fillStyle = colours.track;
        paint.fillRect(gutter, row.y, width - gutter, row.height);
        paint.save();
        paint.beginPath();
        paint.rect(gutter, row.y, width - gutter, row.height);
        paint.clip();
        drawItems(row);
        paint.restore();
        drawLabel(row);
      });
      if (chosen) drawChosen();
    }

    function drawAxis() {
      const rough = (to - from) * tick / Math.max(2, (width - gutter) / 110);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
      paint.font = "11px system-ui, 'DejaVu Sans', sans-serif";
      paint.textAlign = "center";
      for (let k = Math.ceil(from * tick / step); k * step <= to * tick; k += 1) {
        const x = xOf(k * step / tick);
        paint.fillStyle = colours.line;
        paint.fillRect(x, 16, 1, rows.height);
        paint.fillStyle = colours.muted;
        if (x > gutter + 18 && x < width - 18) paint.fillText(k ? secondsText(k * step) : "0", x, 8);
      }
    }

    function drawLabel(row) {
      if (!row.label) return;
      const isLink = row.kind === "link";
      paint.fillStyle = isLink ? colours.muted : colours.fg;
      paint.font = `${isLink ? 10 : 12}px system-ui, 'DejaVu Sans', sans-serif`;
      paint.textAlign = "right";
      paint.fillText(row.label, gutter - 8, row.y + row.height / 2, gutter - 12);
      paint.fillStyle = colours.device[row.device];
      paint.fillRect(gutter - 5, row.y, 3, row.height);
    }

    // Items of less than a pixel are drawn as what share of the pixel they fill.
    function drawItems(row) {
      const filled = new Map();
      for (const item of row.items) {
        if (item.end < from) continue;
        if (item.start > to) break;
        const left = xOf(item.start), right = xOf(item.end);
        if (right - left >= 1) drawItem(row, item, left, right);
        else {
          if (item.kind === "wait") continue;
          const pixel = Math.floor(left), colour = colourOf(item, row);
          const shares = filled.get(pixel) || {};
          shares[colour] = (shares[colour] || 0) + right - left;
          filled.set(pixel, shares);
        }
      }
      for (const [pixel, shares] of filled) {
        const [[colour]] = Object.entries(shares).sort((a, b) => b[1] - a[1]);
        paint.fillStyle = colour;
        paint.globalAlpha = Math.min(1, 0.25 + Object.values(shares).reduce((a, b) => a + b));
        paint.fillRect(pixel, row.y, 1, row.height);
      }
      paint.globalAlpha = 1;
    }

    function drawItem(row, item, left, right) {
      if (item.kind === "wait") { drawWait(row, item, left, right); return; }
      paint.fillStyle = colourOf(item, row);
      paint.globalAlpha = item.kind === "run" ? 0.6 : 1;
      paint.fillRect(left, row.y, right - left - (right - left > 3 ? 0.7 : 0), row.height);
      paint.globalAlpha = 1;
      if (right - left < 34 || row.height < 13) return;
      const start = Math.max(left, gutter), room = Math.min(right, width) - start - 6;
      paint.font = `${row.height > 20 ? 11 : 9}px system-ui, 'DejaVu Sans', sans-serif`;
      const text = fitting(item.kind === "run" ? countOf(item) : labelOf(item), room);
      paint.textAlign = "left";
      paint.fillStyle = isBright(colourOf(item, row)) ? "#10151c" : "#ffffff";
      if (text) paint.fillText(text, start + 3, row.y + row.height / 2 + 0.5);
    }

    function drawWait(row, item, left, right) {
      const [, , , kind, device] = data.waits[item.index];
      if (kind === "nothing" || device < 0) return;
      if (isByShard) paint.globalAlpha = 0.3;
      if (kind === "transfer") paint.fillStyle = isByShard ? stripes.at(-1) : stripes[device];
      else {
        paint.fillStyle = isByShard ? colours.muted : colours.device[device];
        paint.globalAlpha = isByShard ? 0.15 : 0.28;
      }
      paint.fillRect(left, row.y + 3, right - left, row.height - 6);
      paint.globalAlpha = 1;
    }

    function drawChosen() {
      let item = chosen;
      for (let steps = 0; item && steps < 400; steps += 1) {
        const row = rows[item.row], left = Math.max(xOf(item.start), gutter - 2);
        const right = Math.min(xOf(item.end), width + 2);
        paint.strokeStyle = steps ? colours.fg : colours.focus;
        paint.lineWidth = steps ? 1 : 2.5;
        if (right >= gutter && left <= width) {
          paint.strokeRect(left - 1, row.y - 1, Math.max(right - left, 1) + 2, row.height + 2);
        }
        item = causeOf(item);
      }
    }

    function isBright(colour) {
      const hex = parseInt(colour.slice(1), 16);
      const [red, green, blue] = [hex >> 16, (hex >> 8) & 255, hex & 255];
      return 0.3 * red + 0.59 * green + 0.11 * blue > 128;
    }
    function fitting(text, room) {
      if (paint.measureText(text).width <= room) return text;
      const count = Math.floor(text.length * room / paint.measureText(text).width) - 1;
      return count > 2 ? `${text.slice(0, count)}…` : "";
    }

    // The op or transfer that an item waited for; null for a run, and where it waited for nothing.
    function causeOf({ kind, index }) {
      if (kind === "run") return null;
      if (kind === "transfer") return items.op[data.transfers.cause[index]] || null;
      const cause = kind === "op" ? data.ops.cause[index] : data.waits[index][5];
      return (cause > 0 ? items.op[cause - 1] : items.transfer[-cause - 1]) || null;
    }

    function describe(item) {
      const row = rows[item.row], lasts = secondsText((item.end - item.start) * tick);
      const at = `at ${secondsText(item.start * tick)}`;
      const device = data.devices[row.device].name, cause = causeOf(item);
      const shard = shardOf(item);
      const ofShard = shard < 0 ? "" : `of shard ${shard} (the first is 0) `;
      if (item.kind === "op") {
        const why = !cause ? "it started when its device was free" :
          cause.kind === "op" ? `after ${nameOf(cause)}` :
          `it waited for ${nameOf(cause)}, from ${data.devices[rows[cause.row].device].name}`;
        tell(told, nameOf(item), `${data.types[data.ops.type[item.index]]} ${ofShard}on ${device}, ${lasts}, ${at}; ${why}`);
      } else if (item.kind === "transfer") {
        const queued = (item.start - data.transfers.made[item.index]) * tick;
        tell(told, nameOf(item), `${row.label}, ${bytesText(data.transfers.bytes[item.index])}, ${lasts}, ${at}` +
          (queued > 0 ? `; its link was busy for ${secondsText(queued)} before` : ""));
      } else if (item.kind === "run") {
        tell(told, countOf(item), `${row.label || device}, within ${lasts}, ${at}`);
      } else {
        const [, , , kind, other] = data.waits[item.index];
        const what = kind === "nothing" ? "nothing left to do" : kind === "sending" ? "it copies tensors itself" :
          `waits for ${kind === "op" ? "an op on" : "a transfer from"} ${data.devices[other].name}`;
        tell(told, `${device} is idle`, `for ${lasts}, ${at}: ${what}${cause ? `, ${nameOf(cause)}` : ""}`);
      }
    }

    // ---- moving about ----
    function show(start, end) {
      const span = Math.min(Math.max(end - start, 20), data.ticks);
      const centre = (start + end) / 2;
      from = Math.min(Math.max(centre - span / 2, 0), data.ticks - span);
      to = from + span;
      draw();
    }
    const zoom = (factor, centre) => show(centre - (centre - from) * factor, centre + (to - centre) * factor);
    const pan = (share) => show(from + share * (to - from), to + share * (to - from));
    function choose(item, isToBeSeen = true) {
      chosen = item;
      if (!item) { draw(); return; }
      row = item.row;
      describe(item);
      const isOutside = item.start > to || item.end < from;
      const isTiny = (item.end - item.start) < (to - from) / (width || 800);
      if (isToBeSeen && (isOutside || isTiny)) {
        const span = isTiny ? Math.max((item.end - item.start) * 40, 20) : to - from;
        const centre = (item.start + item.end) / 2;
        show(centre - span / 2, centre + span / 2);
      } else draw();
    }
    function nearest(items, time) {
      let best = null, least = Infinity;
      for (const item of items) {
        const off = Math.max(item.start - time, time - item.end, 0);
        if (off < least || (off === least && item.kind !== "wait")) { best = item; least = off; }
      }
      return [best, least];
    }
    function along(direction) {
      const items = rows[row].items;
      if (!items.length) return;
      const place = chosen && chosen.row === row ? items.indexOf(chosen) : -1;
      if (place < 0) choose(nearest(items, direction > 0 ? from : to)[0]);
      else choose(items[Math.min(Math.max(place + direction, 0), items.length - 1)]);
    }
    function toRow(direction) {
      const centre = chosen ? (chosen.start + chosen.end) / 2 : (from + to) / 2;
      let next = row;
      do next += direction; while (rows[next] && !rows[next].items.length);
      if (rows[next]) choose(nearest(rows[next].items, centre)[0]);
    }
    const middle = () => chosen && chosen.start <= to && chosen.end >= from ?
      Math.min(Math.max((chosen.start + chosen.end) / 2, from), to) : (from + to) / 2;
    const actions = {
      in: () => zoom(0.6, middle()), out: () => zoom(1 / 0.6, middle()),
      left: () => pan(-0.2), right: () => pan(0.2), all: () => show(0, data.ticks),
      previous: () => along(-1), next: () => along(1),
      cause: () => { const cause = chosen && causeOf(chosen); if (cause) choose(cause); },
      up: () => toRow(-1), down: () => toRow(1),
      closer: () => chosen && show(1.5 * chosen.start - 0.5 * chosen.end, 1.5 * chosen.end - 0.5 * chosen.start),
      none: () => choose(null),
      colour: () => { isByShard = data.shards > 0 && !isByShard; draw(); },
    };
    const keys = { "+": "in", "=": "in", "-": "out", "−": "out", ArrowLeft: "left", ArrowRight: "right",
      "0": "all", Home: "all", ArrowUp: "up", ArrowDown: "down", n: "next", p: "previous", w: "cause",
      Enter: "closer", Escape: "none", c: "colour" };
    canvas.addEventListener("keydown", (event) => {
      const action = keys[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[action]();
    });
    document.querySelectorAll("button[data-do]").forEach((button) =>
      button.addEventListener("click", () => actions[button.dataset.do]()));

    // ---- the mouse, where there is one ----
    function itemAt(event) {
      const box = canvas.getBoundingClientRect();
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const pointed = rows.find((r) => y >= r.y - 1 && y <= r.y + r.height + 1);
      if (!pointed || x < gutter) return null;
      const [item, off] = nearest(pointed.items, timeAt(x));
      return off <= 3 * (to - from) / (width - gutter) ? item : null;
    }
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, from, to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) { const item = itemAt(event); if (item && !chosen) describe(item); return; }
      const shift = (held.x - event.clientX) * (held.to - held.from) / (width - gutter);
      held.moved = held.moved || Math.abs(held.x - event.clientX) > 3;
      if (held.moved) show(held.from + shift, held.to + shift);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held && !held.moved) choose(itemAt(event), false);
      held = null;
    });
    canvas.addEventListener("dblclick", (event) => {
      zoom(0.4, timeAt(event.clientX - canvas.getBoundingClientRect().left));
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.clientX - canvas.getBoundingClientRect().left));
    }, { passive: false });

    readColours();
    resize();
    new ResizeObserver(resize).observe(canvas.parentElement);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
  }

  timeline(byId("timeline"), byId("timeline-told"), JSON.parse(byId("timeline-data").textContent));
  byId("copy").addEventListener("click", async () => {
    const text = byId("command").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection().selectAllChildren(byId("command"));  // a page from a file may not write it
      document.execCommand("copy");
    }
    byId("copy").textContent = "copied";
  });
})();
