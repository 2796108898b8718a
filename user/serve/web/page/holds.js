// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Live tensors of a process, read from outside on request.
"use strict";
(() => {
	const { $, el, state } = Page;
	const { bytes, count, seconds } = Words;
	const C = Page.columns;
	let grid = null, of = null;

	const name = r => r.held === false ? Words.UNHELD : r.holder || r.name || C.moduleOf(r);
	const NAME = { id: "name", title: "Tensor", width: "minmax(150px, 2fr)", narrow: "second", sort: name, text: name, tip: r => [name(r), r.module_class && `(${r.module_class})`].filter(Boolean).join(" ") };
	const SHAPE = { id: "shape", title: "Shape", width: "minmax(90px, 1fr)", narrow: null, sort: r => (r.shape ?? []).join("×"), text: r => r.shape ? r.shape.join(" × ") || "scalar" : "" };
	const DTYPE = { id: "dtype", title: "Type", width: "80px", narrow: null, sort: r => r.dtype ?? "", text: r => r.dtype ?? "" };
	const each = r => r.shape ? `[${r.shape.join(", ")}] ${r.dtype ?? ""}` : r.size ? `${bytes(r.size)} each` : "";
	const EACH = { id: "shape", title: "Each tensor", width: "minmax(110px, 1fr)", narrow: null, sort: each, text: each };
	const DEVICE = { id: "device", title: "Device", width: "64px", narrow: "60px", sort: r => r.device, text: r => r.device };

	function columns(by, rows) {
		const most = rows.reduce((a, r) => Math.max(a, r.bytes), 0), sum = rows.reduce((a, r) => a + r.bytes, 0);
		const size = C.size(most, sum, r => r.category ? Page.categoryColour(r.category) : Page.colour("accent")), share = C.share(sum), tensors = { ...C.count, title: "Tensors" };
		if (by === "module")
			return [size, share, tensors, DEVICE, { ...C.module, width: "minmax(150px, 2fr)", narrow: "second" }];
		if (by === "category")
			return [size, share, tensors, DEVICE, { ...C.category, width: "minmax(126px, 1fr)" }];
		if (by === "holder")
			return [size, share, tensors, C.category, DEVICE, { ...NAME, title: "Held by" }, EACH];
		return [size, share, C.category, DEVICE, SHAPE, DTYPE, NAME];
	}

	function say(text, bad) {
		$("now-says").textContent = text;
		$("now-says").classList.toggle("warn", Boolean(bad));
	}

	async function look() {
		const p = of, by = $("now-by").value;
		say("Reading…");
		$("now-again").disabled = true;
		try {
			const doc = await Page.net.api(`targets/${p.pid}/dump?by=${by}&top=2000`);
			const r = doc.reading ?? {};
			say(`${[p.name, `PID ${p.pid}`].filter(Boolean).join(" · ")} · ${count(r.objects ?? 0)} objects read in ${seconds(r.seconds ?? 0)}${r.complete === false ? ", some of them changed meanwhile" : ""}`);
			$("now-devices").replaceChildren(...doc.devices.map(d => el("li", {}, d.device + " ", el("b", { textContent: bytes(d.allocated) }), d.reserved ? ` of ${bytes(d.reserved)} reserved` : "", d.unheld ? `, ${bytes(d.unheld)} without a known object` : "", d.device === "cpu" ? " in tensors" : "")));
			grid.show(columns(by, doc.rows), doc.rows);
			const cpu = doc.devices.find(d => d.device === "cpu");
			if (cpu) {
				p.tensors = { bytes: cpu.allocated, time: Date.now() / 1000 };
				Page.touch("processes");
			}
		} catch (err) {
			say(err.message, true);
		} finally {
			$("now-again").disabled = false;
		}
	}

	function open() {
		const p = Page.chosenProcess();
		if (!p || p.gone || state.route.view !== "home")
			return;
		if (of !== p) {
			$("now-devices").replaceChildren();
			grid.show([], []);
		}
		of = p;
		if (!$("now").open)
			$("now").showModal();
		$("now-table").focus();
		look();
	}

	function start() {
		grid = Page.grid($("now-table"));
		$("holds").addEventListener("click", open);
		$("now-again").addEventListener("click", look);
		$("now-by").addEventListener("change", look);
		$("now-close").addEventListener("click", () => $("now").close());
	}

	Page.holds = { start, open };
})();
