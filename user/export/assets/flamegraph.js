// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Draws the data written by flamegraph.c. Names come from a traced program: use them only as textContent.
"use strict";
(() => {
	const { bytes, count, blocks, percent, seconds, command, NOTES } = Words;
	const data = JSON.parse(document.getElementById("data").textContent);
	const $ = id => document.getElementById(id);
	const graph = $("graph");
	if (data.diff)
		Change.expand(data);

	// Indexed by enum frame_kind.
	const KINDS = [
		["user", "Your code"],
		["module", "nn.Module call"],
		["torch", "PyTorch"],
		["installed", "Other libraries"],
		["stdlib", "Standard library"],
		["note", "No Python stack"],
	];

	// ---- frames

	const frames = [];
	for (let i = 0; i < data.frames.length; i += 4)
		frames.push({
			name: data.strings[data.frames[i]],
			file: data.strings[data.frames[i + 1]] ?? "",
			line: data.frames[i + 2],
			kind: KINDS[data.frames[i + 3]][0],
			was: data.was?.[i / 4] ?? 0, // with two recordings: the line in the old one, if different
		});

	// With layer numbers merged, blocks.0.attn and blocks.1.attn are one frame, blocks.*.attn.
	const merged = frames.map((f, i) => i);
	const starred = new Map();
	frames.slice().forEach((f, i) => {
		const name = f.kind === "module" ? f.name.replace(/(^|\.)\d+(?=[. ]|$)/g, "$1*") : f.name;
		if (name === f.name)
			return;
		if (!starred.has(name))
			starred.set(name, frames.push({ ...f, name }) - 1);
		merged[i] = starred.get(name);
	});

	// ---- state

	const main = Math.max(0, data.devices.findIndex(d => d.main));
	const OPTIONS = [["hide-torch", "hideTorch"], ["merge", "merge"], ["leaf-first", "leafFirst"], ["icicle", "icicle"]];
	const state = { device: main, view: 0 };
	const flames = new Flames(frames, parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10), 0.7);
	let sums; // by node: blocks, and with two recordings the old and new sizes; unknown: whether blocks are missing

	const device = () => data.devices[state.device];
	const view = () => device().views[state.view];
	const total = v => v.total ?? (v.total = v.bytes.reduce((a, b) => a + b, 0));

	// ---- tree: the stacks of a view under the current options

	function stackOf(node) {
		const out = [];
		for (; node >= 0; node = data.nodes.parent[node]) {
			const f = data.nodes.frame[node];
			out.unshift(flames.options.merge ? merged[f] : f);
		}
		return out;
	}

	function build() {
		const v = view();
		flames.title = "All of " + device().name;
		flames.build(v.node, stackOf);
		flames.values = flames.sum(v.bytes);
		sums = { count: flames.sum(v.count), old: v.old && flames.sum(v.old), new: v.new && flames.sum(v.new),
			unknown: flames.sum(v.bytes.map((b, i) => b && !v.count[i] ? 1 : 0)) }; // before attach: the number of blocks is not known
	}

	function showMatched() {
		graph.classList.toggle("searching", flames.hits !== null);
		const sum = flames.hits ? flames.matched() : 0;
		$("matched").textContent = !flames.hits ? "" : sum ? `${percent(sum, flames.values[flames.zoom])} matched · ${bytes(sum)}` :
			flames.zoom ? "no match in this frame" : "no match";
	}

	// ---- drawing

	function place(o, i) {
		const el = o.el = document.createElement("div");
		el.style.left = o.x + "px";
		el.style.top = o.y + "px";
		el.dataset.i = i;
		if (o.more) {
			el.className = "f thin more";
			el.style.width = o.w + "px";
			el.setAttribute("aria-hidden", "true");
			return el;
		}
		const size = flames.values[o.n];
		el.className = "f " + (data.diff ? Change.colour(sums.old[o.n], sums.new[o.n]) : flames.frameOf(o.n)?.kind ?? "root");
		el.classList.toggle("hit", flames.hit(o.n));
		el.classList.toggle("above", !!o.above);
		el.classList.toggle("thin", o.w < 12);
		el.classList.toggle("narrow", o.w < 72);
		el.style.width = Math.max(o.w - (o.w > 3 ? 1 : 0), flames.thin) + "px";
		el.id = "f" + i;
		el.setAttribute("role", "treeitem");
		el.setAttribute("aria-level", o.depth + 1);
		el.setAttribute("aria-label", flames.name(o.n) + ", " + (data.diff ? change(o.n) + ", " : "") + bytes(size) + ", " + percent(size, flames.values[0]));
		if (o.w >= 24)
			write(el, o);
		return el;
	}

	function write(el, o) {
		const t = document.createElement("span"), f = flames.frameOf(o.n);
		t.className = "t";
		t.textContent = flames.short(o.n, o.w < 110);
		if (f && f.file && o.w > 90) {
			const w = document.createElement("span");
			w.className = "w";
			w.textContent = Flames.base(f);
			t.append(w);
		}
		el.append(t);
		if (o.w > 210) {
			const b = document.createElement("span");
			b.className = "b";
			b.textContent = data.diff ? Change.signed(sums.new[o.n] - sums.old[o.n]) : bytes(flames.values[o.n]);
			el.append(b);
		}
	}

	const change = n => Change.words(sums.old[n], sums.new[n]);

	function draw() {
		graph.style.height = flames.layout(graph.clientWidth) + "px";
		graph.replaceChildren(...flames.drawn.map(place));
		$("reset").disabled = !flames.zoom;
		showMatched();
		markAt();
	}

	// ---- details and tooltip

	function numbers(o) {
		const { values, depth, zoom } = flames, all = values[0];
		if (o.more)
			return [`${count(o.more)} frames too narrow to draw`, bytes(o.rest) + " · " + percent(o.rest, all), "Zoom in to see them."];
		const n = o.n, f = flames.frameOf(n);
		const parts = [data.diff ? change(n) : bytes(values[n]), percent(values[n], all) + " of all"];
		if (zoom && depth[n] > depth[zoom])
			parts.push(percent(values[n], values[zoom]) + " of the zoomed frame");
		if (!sums.unknown[n] && sums.count[n])
			parts.push(blocks(sums.count[n]));
		const where = f ? Flames.location(f) + (f.was ? ", moved from :" + f.was : "") || NOTES[f.name] : "";
		return [flames.name(n), parts.join(" · "), where ?? ""];
	}

	function showDetails(o) {
		const [name, line, where] = o ? numbers(o) : ["", "", ""];
		$("d-name").textContent = name;
		$("d-numbers").textContent = line;
		$("d-where").textContent = where;
	}

	function showTip(o, x, y) {
		const tip = $("tip");
		const [name, line, where] = numbers(o);
		tip.children[0].textContent = name;
		tip.children[1].textContent = line;
		tip.children[2].textContent = where;
		tip.hidden = false;
		const box = tip.getBoundingClientRect();
		const left = Math.min(x + 14, innerWidth - box.width - 8);
		const top = y + 18 + box.height > innerHeight - 8 ? y - box.height - 10 : y + 18;
		tip.style.left = Math.max(8, left) + "px";
		tip.style.top = Math.max(8, top) + "px";
	}

	const hideTip = () => { $("tip").hidden = true; };
	const drawnAt = el => {
		const f = el instanceof Element ? el.closest(".f") : null;
		return f ? flames.drawn[f.dataset.i] : null;
	};

	// ---- zoom and keyboard focus

	function zoomTo(n) {
		hideTip();
		flames.zoom = flames.at = n;
		draw();
		showDetails({ n });
	}

	function markAt() {
		const focused = document.activeElement === graph;
		graph.removeAttribute("aria-activedescendant");
		for (const o of flames.drawn) {
			const here = focused && !o.more && o.n === flames.at;
			o.el.classList.toggle("at", here);
			if (here) {
				graph.setAttribute("aria-activedescendant", o.el.id);
				o.el.scrollIntoView({ block: "nearest" });
			}
		}
	}

	function step(key) {
		const next = flames.step(key);
		if (!next)
			return;
		markAt();
		showDetails(next);
	}

	// ---- changes of the state

	function rebuild() {
		build();
		headline();
		const nothing = !flames.values[0];
		graph.hidden = nothing;
		$("empty").hidden = !nothing;
		$("empty").textContent = `Nothing is allocated on ${device().name} here.`;
		showDetails(null);
		if (!nothing) {
			draw();
			showDetails({ n: flames.zoom });
		}
		const v = view();
		$("notes").textContent = v.smaller ? `${count(v.smaller)} smallest stacks are in the one frame “[smaller stacks]”.` : "";
	}

	function diffHeadline() {
		const small = document.createElement("small"), { old, new: now } = data.diff;
		small.textContent = Change.headline(data, view(), flames.values[0]);
		$("headline").replaceChildren(Change.signed(now.bytes - old.bytes) + " ", small);
		document.title = `${Change.signed(now.bytes - old.bytes)}, ${device().name} · ${old.name} → ${now.name}`;
		graph.setAttribute("aria-label", `Flame graph of what changed: ${Change.words(old.bytes, now.bytes)}`);
	}

	function headline() {
		const v = view(), d = device();
		if (data.diff)
			return diffHeadline();
		const when = {
			peak: `at the peak on ${d.name}`,
			oom: `when ${d.name} ran out of memory`,
			end: `at the end on ${d.name}`,
			total: `allocated in total on ${d.name}`,
		}[v.id] ?? `at ${v.id} on ${d.name}`;
		const parts = [when];
		if (v.id === "peak" || v.id === "oom")
			parts[0] += v.time !== undefined ? `, at ${seconds(v.time)}` : "";
		const inside = [v.step !== undefined && `step ${v.step}`, v.phase !== "other" && v.phase].filter(Boolean);
		if (inside.length)
			parts.push(inside.join(", "));
		if (v.reserved)
			parts.push(`${bytes(v.reserved)} reserved`);
		const small = document.createElement("small");
		small.textContent = parts.join(" · ");
		$("headline").replaceChildren(bytes(flames.values[0]) + " ", small);
		document.title = `${bytes(flames.values[0])} ${v.label.toLowerCase()}, ${d.name} · pid ${data.facts.pid ?? "?"} · ${command(data)}`;
		graph.setAttribute("aria-label", `Flame graph: ${bytes(flames.values[0])} ${when}`);
	}

	function facts() {
		if (data.diff)
			return Change.facts(data, $("facts"), $("command"));
		const f = data.facts;
		const items = [
			f.pid && `pid ${f.pid}`,
			f.torch && `torch ${f.torch}`,
			f.python && `Python ${f.python}`,
			seconds(data.duration),
			`${count(data.events)} events`,
		].filter(Boolean);
		for (const text of items) {
			const li = document.createElement("li");
			li.textContent = text;
			$("facts").append(li);
		}
		const lost = document.createElement("li");
		lost.textContent = `${count(data.lost)} lost`;
		lost.className = data.lost ? "warn" : "";
		$("facts").append(lost);
		$("command").textContent = command(data);
	}

	function legend() {
		if (data.diff)
			return Change.legend($("legend"));
		const used = new Set(), seen = new Set();
		for (const v of data.devices.flatMap(d => d.views))
			for (let n of v.node)
				for (; n >= 0 && !seen.has(n); n = data.nodes.parent[n]) {
					seen.add(n);
					used.add(frames[data.nodes.frame[n]].kind);
				}
		KINDS.forEach(([cls, name]) => {
			if (!used.has(cls))
				return;
			const li = document.createElement("li"), i = document.createElement("i");
			i.className = cls;
			li.append(i, name);
			$("legend").append(li);
		});
	}

	function views() {
		const buttons = device().views.map((v, i) => {
			const b = document.createElement("button"), size = document.createElement("span");
			b.type = "button";
			b.setAttribute("role", "radio");
			b.setAttribute("aria-checked", String(i === state.view));
			b.tabIndex = i === state.view ? 0 : -1;
			size.textContent = bytes(total(v));
			b.append(v.label, size);
			b.addEventListener("click", () => chooseView(i));
			return b;
		});
		$("views").replaceChildren(...buttons);
	}

	function chooseView(i) {
		const had = $("views").contains(document.activeElement);
		state.view = i;
		views();
		rebuild();
		if (had)
			$("views").children[i].focus();
	}

	function devices() {
		$("device-box").hidden = data.devices.length < 2;
		data.devices.forEach((d, i) => {
			const o = document.createElement("option");
			o.value = i;
			o.textContent = d.name;
			o.selected = i === state.device;
			$("device").append(o);
		});
	}

	// ---- events

	graph.addEventListener("click", e => {
		const o = drawnAt(e.target);
		graph.focus({ preventScroll: true });
		if (o)
			zoomTo(o.n);
	});
	graph.addEventListener("pointermove", e => {
		const o = drawnAt(e.target);
		if (!o || e.pointerType !== "mouse") {
			hideTip();
			return;
		}
		showTip(o, e.clientX, e.clientY);
		showDetails(o);
	});
	graph.addEventListener("pointerleave", () => {
		hideTip();
		showDetails({ n: flames.at });
	});
	graph.addEventListener("focus", markAt);
	graph.addEventListener("blur", markAt);
	graph.addEventListener("keydown", e => {
		if (e.ctrlKey || e.metaKey || e.altKey)
			return;
		if (["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(e.key))
			step(e.key);
		else if (e.key === "Enter" || e.key === " ")
			zoomTo(flames.at);
		else
			return;
		e.preventDefault();
	});

	$("views").addEventListener("keydown", e => {
		const n = device().views.length;
		const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: n - 1, ArrowUp: n - 1 }[e.key];
		if (!by)
			return;
		e.preventDefault();
		chooseView((state.view + by) % n);
	});

	$("search").addEventListener("input", e => {
		flames.search(e.target.value);
		if (flames.values[0])
			draw();
	});

	addEventListener("keydown", e => {
		const typing = document.activeElement === $("search");
		// A second Ctrl-F opens the browser's own search.
		if (((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "f" && !typing) ||
		    (e.key === "/" && !typing && document.activeElement !== $("device"))) {
			e.preventDefault();
			$("search").focus();
			$("search").select();
		} else if (e.key === "Escape") {
			if (typing && $("search").value) {
				$("search").value = "";
				$("search").dispatchEvent(new Event("input"));
				e.preventDefault();
			} else if (typing) {
				graph.focus();
			} else if (flames.zoom) {
				zoomTo(0);
			}
		}
	});

	$("reset").addEventListener("click", () => zoomTo(0));
	$("device").addEventListener("change", e => {
		const id = view().id;
		state.device = Number(e.target.value);
		state.view = Math.max(0, device().views.findIndex(v => v.id === id));
		views();
		rebuild();
	});
	for (const [id, key] of OPTIONS)
		$(id).addEventListener("change", e => {
			flames.options[key] = e.target.checked;
			rebuild();
			if (id === "icicle" && !flames.options.icicle)
				graph.scrollIntoView({ block: "end" }); // show the root
		});

	let width = 0;
	new ResizeObserver(() => {
		if (graph.clientWidth === width || !flames.values[0])
			return;
		width = graph.clientWidth;
		draw();
	}).observe(graph);

	// Browsers restore form values on reload, so read the state from the form.
	for (const [id, key] of OPTIONS)
		flames.options[key] = $(id).checked;
	flames.search($("search").value);
	$("merge-box").hidden = !starred.size;
	facts();
	devices();
	legend();
	views();
	if (data.diff)
		Change.table(data, frames, $("table"));
	rebuild();
})();
