// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A capture as a file, in every format that the server can write.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { bytes } = Words;

	function formats() {
		const list = model.hello?.formats ?? [], chosen = $("formats").value || "speedscope";
		$("formats").replaceChildren(...list.map(f => el("option", { value: f.name, textContent: f.name, title: f.help ?? "", selected: f.name === chosen })));
		help();
	}

	function help() {
		const f = (model.hello?.formats ?? []).find(x => x.name === $("formats").value);
		$("formats").title = f?.help ?? "";
	}

	async function download() {
		const says = $("download-says"), format = $("formats").value;
		says.classList.remove("warn");
		says.textContent = `Writing ${format}…`;
		$("download").disabled = true;
		try {
			const r = await Page.net.api("trace/export", { method: "POST", body: { trace_id: state.route.id, format } });
			// As a path of this page's own folder, wherever that is.
			const a = el("a", { href: String(r.download_url).replace(/^\/+/, ""), download: r.download_url.slice(r.download_url.lastIndexOf("/") + 1) });
			if (new URL(a.href).origin !== location.origin)
				throw new Error("The server names a file that is not its own.");
			a.click();
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
