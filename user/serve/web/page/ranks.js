// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The ranks of a job as a grid of cells; a click opens one.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const MOST_IDS = 64; // as in the API
	let map = null, doc = null, asked = "", chosen = "", renewTable = null;

	const want = () => ({ colour: "memory", at: "peak", job: "", ...Object.fromEntries(state.route.query ?? []) });
	function address(ids, { colour, at, job } = want()) {
		const p = [ids.length && "traces=" + ids.map(encodeURIComponent).join(","), !ids.length && job && "job=" + encodeURIComponent(job), at !== "peak" && "at=" + at, colour !== "memory" && "colour=" + colour].filter(Boolean);
		return "#/ranks" + (p.length ? "?" + p.join("&") : "");
	}
	function change(patch) {
		Page.stay(address(state.route.traces, { ...want(), ...patch }));
		Page.set({ route: Page.readRoute() });
	}

	function open(r) {
		const t = [...model.traces.values()].find(t => t.file === r.recording || t.file === r.recording + ".mtr");
		if (t)
			Page.go(Page.traceAddress(t.trace_id, want().at === "peak" ? "" : "at=" + want().at));
		else
			Page.say(`The capture of ${r.label} has been deleted.`);
	}

	const said = (r, words) => $("ranks-at").replaceChildren(el("b", { textContent: words[0] }), ...words.slice(1).map(w => el("span", { textContent: w })));

	function paint() {
		if (!doc)
			return;
		map.colour(want().colour in RankMap.WHAT ? want().colour : "memory");
		RankMap.legend($("ranks-legend"), map);
	}

	function show() {
		const [title, facts] = RankMap.heading(doc);
		$("ranks-title").textContent = title;
		$("ranks-title").title = title;
		$("ranks-facts").textContent = facts;
		map.show(doc);
		RankMap.differ($("ranks-odd"), map, open);
		paint();
		renewTable();
	}

	async function load() {
		const p = new URLSearchParams({ at: want().at, ...(state.route.traces.length ? { traces: state.route.traces.join(",") } : want().job ? { job: want().job } : {}) }), question = "trace/ranks?" + p;
		if (question === asked)
			return paint();
		asked = question;
		doc = null;
		$("ranks-says").classList.remove("warn");
		$("ranks-says").textContent = "Reading the recordings…";
		$("ranks").setAttribute("aria-busy", "true");
		try {
			const answer = await Page.net.api(question);
			if (question !== asked)
				return;
			doc = answer;
			$("ranks-says").textContent = "";
			show();
		} catch (err) {
			asked = "";
			$("ranks-says").textContent = err.message;
			$("ranks-says").classList.add("warn");
		}
		$("ranks").removeAttribute("aria-busy");
	}

	function route() {
		if (state.route.view !== "ranks")
			return;
		document.title = "Ranks · memtrace-bpf";
		$("ranks-moment").value = want().at;
		choices();
		Page.radios($("ranks-colour"), Object.keys(RankMap.WHAT), want().colour, colour => change({ colour }), name => el("button", { textContent: RankMap.WHAT[name].title }));
		load();
	}

	const done = () => [...model.traces.values()].filter(t => t.state === "done");
	const finished = () => done().map(t => t.trace_id);
	const marked = () => finished().filter(id => state.marked.has(id));

	// Finished captures by target or folder, newest first: [name, number].
	const jobOf = t => t.model_name || t.folder || "";
	function jobs() {
		const all = new Map();
		for (const t of done().sort((a, b) => b.begun - a.begun))
			all.set(jobOf(t), (all.get(jobOf(t)) ?? 0) + 1);
		return [...all];
	}

	function choices() {
		if (state.route.view !== "ranks")
			return;
		const all = jobs(), named = all.filter(([name]) => name), option = (value, textContent) => el("option", { value, textContent });
		$("ranks-jobs").hidden = all.length < 2 || !named.length || state.route.traces.length > 0;
		if (JSON.stringify(named) !== chosen) { // an open list stays open
			chosen = JSON.stringify(named);
			$("ranks-job").replaceChildren(option("", "all captures"), ...named.map(([name, n]) => option(name, `${name} (${n})`)));
		}
		$("ranks-job").value = want().job;
	}

	function button() {
		const few = new Set(done().map(t => t.pid ?? t.trace_id)).size < 2;
		$("show-ranks").disabled = few;
		$("show-ranks").title = few ? "Needs finished captures of two processes" : "The captures of the newest job, or the marked ones, as ranks";
		$("show-ranks").textContent = marked().length > 1 ? `Ranks of ${marked().length}` : "Ranks";
	}

	// Of the marked captures, or of the job of the newest one.
	function begin() {
		const ids = marked(), all = jobs();
		if (ids.length > MOST_IDS)
			Page.say(`Mark at most ${MOST_IDS} captures, or none for all.`);
		else
			Page.go(address(ids.length > 1 ? ids : [], { ...want(), job: all.length > 1 ? all[0][0] : "" }));
	}

	function start() {
		map = RankMap.make($("ranks-grid"), { open, said });
		renewTable = Page.twin($("ranks-twin"), () => doc ? RankMap.table(map, doc) : { columns: [], rows: [] });
		$("ranks-moment").addEventListener("change", e => change({ at: e.target.value }));
		$("ranks-job").addEventListener("change", e => change({ job: e.target.value }));
		$("show-ranks").addEventListener("click", begin);
		Page.watch(["traces", "marked"], button);
		Page.watch(["traces"], choices);
		Page.watch(["route"], route);
		Page.watch(["theme"], () => { map.draw(); paint(); });
		button();
	}

	Page.ranks = { start, get map() { return map; }, get doc() { return doc; } };
})();
