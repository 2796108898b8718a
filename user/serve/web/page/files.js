// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Download of a capture in every format that the server supports.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { bytes } = Words;

	const RECORDING = { name: "recording", help: "The recording itself, for memtrace-bpf on another machine" };
	const all = () => [...(model.hello?.formats ?? []), RECORDING];

	let chosen = "speedscope";

	function formats() {
		// The recording itself is offered without conversion.
		$("formats").replaceChildren(...all().map(f => el("option", { value: f.name, textContent: f.name, title: f.help ?? "", selected: f.name === chosen })));
		if (model.hello)
			help();
	}

	function help() {
		chosen = $("formats").value || chosen;
		const f = all().find(x => x.name === $("formats").value);
		$("formats").title = f?.help ?? "";
	}

	function save(href, name) {
		const a = el("a", { href, download: name });
		if (new URL(a.href).origin !== location.origin)
			throw new Error("The server names a file that is not its own.");
		a.click();
	}

	async function download() {
		const says = $("download-says"), format = $("formats").value;
		says.classList.remove("warn");
		if (format === RECORDING.name)
			return save(`api/trace/${encodeURIComponent(state.route.id)}/recording`, state.route.id + ".mtr");
		says.textContent = `Writing ${format}…`;
		$("download").disabled = true;
		try {
			const r = await Page.net.api("trace/export", { method: "POST", body: { trace_id: state.route.id, format } });
			// Relative to this page's folder, which may be below a proxy's prefix.
			save(String(r.download_url).replace(/^\/+/, ""), r.download_url.slice(r.download_url.lastIndexOf("/") + 1));
			says.textContent = `${format}: ${bytes(r.file_size_bytes)}`;
		} catch (err) {
			says.textContent = err.message;
			says.classList.add("warn");
		} finally {
			$("download").disabled = false;
		}
	}

	function start() {
		$("formats").addEventListener("change", help);
		$("download").addEventListener("click", download);
		Page.watch(["hello"], formats);
		Page.watch(["route"], () => { $("download-says").textContent = ""; });
		formats();
	}

	Page.files = { start, download };
})();
