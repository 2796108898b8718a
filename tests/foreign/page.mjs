// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What tests and benchmarks of the exported page share: the browser, the page as it opens, pictures beside references.
import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";
import playwright from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium", FIREFOX = process.env.FIREFOX ?? "/usr/bin/firefox-esr";
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run", "--font-render-hinting=none"];

function missing(path) {
	console.error(`SKIP: no browser at ${path}`);
	process.exit(77);
}

// Firefox is the system's, over WebDriver BiDi, which sets its colour scheme at the start only.
async function firefox(scheme) {
	const dark = scheme === "dark" ? 1 : 0;
	const browser = await playwright._bidiFirefox.launch({
		executablePath: FIREFOX, firefoxUserPrefs: { "ui.systemUsesDarkTheme": dark, "layout.css.prefers-color-scheme.content-override": 1 - dark },
	});
	return Object.assign(browser, { kind: "firefox", scheme });
}

// Chromium, or with BROWSER=firefox Firefox.
export async function launch(scheme = "light") {
	if (process.env.BROWSER === "firefox")
		return existsSync(FIREFOX) ? firefox(scheme) : missing(FIREFOX);
	return existsSync(CHROMIUM) ? playwright.chromium.launch({ executablePath: CHROMIUM, args: ARGS }) : missing(CHROMIUM);
}

// A context with a colour scheme: of a second Firefox, if the first was started with another one.
export async function context(browser, options) {
	if (browser.kind === "firefox" && options.colorScheme !== browser.scheme)
		browser = browser.other ??= await firefox(options.colorScheme);
	return browser.newContext(options);
}

export async function quit(browser) {
	await browser.other?.close();
	await browser.close();
}

// Functions that start each installed browser, or Chromium only, for a colour scheme.
export function browsers(every) {
	const all = [];
	if (existsSync(CHROMIUM))
		all.push(async () => Object.assign(await launch(), { kind: "chromium" }));
	if (every && existsSync(FIREFOX))
		all.push(firefox);
	return all.length ? all : missing(CHROMIUM);
}

// Whatever the page asks for, says on the console or throws is a problem; there is no network.
export async function open(browser, file, options = {}, hash = "") {
	const url = pathToFileURL(resolve(file)).href;
	const page = await (await context(browser, { viewport: { width: 1280, height: 900 }, colorScheme: "light", offline: true, ...options })).newPage();
	page.problems = [];
	page.on("console", m => page.problems.push(`console ${m.type()}: ${m.text()}`));
	page.on("pageerror", e => page.problems.push(`error: ${e}`));
	page.on("request", r => { if (r.url().split("#")[0] !== url && !r.url().startsWith("data:")) page.problems.push(`request: ${r.url()}`); });
	page.on("dialog", d => { page.problems.push(`dialog: ${d.message()}`); d.dismiss(); });
	await page.goto(url + hash);
	await page.waitForFunction(() => ["ready", "failed"].includes(document.body.dataset.state));
	assert.equal(await page.evaluate(() => document.body.dataset.state), "ready");
	return page;
}

export async function close(page) {
	assert.deepEqual(page.problems, []);
	await page.context().close();
}

// After the next picture; the filter waits for 60 ms without a key.
export const settled = (page, ms = 0) => page.evaluate(ms => new Promise(done => setTimeout(() => { Page.settle(); requestAnimationFrame(done); }, ms)), ms);

// A picture at a quarter of its size, as PNG, and how far it is from a reference: [mean of 255, part of the points that are far off].
export async function small(browser, png, scale = 0.25) {
	return paint(browser, async ({ png, scale }) => {
		const { c, w, h } = await load(png, scale);
		void c;
		return { png: document.querySelector("canvas").toDataURL("image/png").split(",")[1], w, h };
	}, { png: png.toString("base64"), scale });
}

export async function distance(browser, a, file) {
	const b = readFileSync(file).toString("base64");
	return paint(browser, async ({ a, b }) => {
		const x = await load(a, 1), y = await load(b, 1);
		if (x.w !== y.w || x.h !== y.h)
			return [255, 1];
		const p = x.c, q = y.c;
		let sum = 0, far = 0;
		for (let i = 0; i < p.length; i += 4) {
			const d = (Math.abs(p[i] - q[i]) + Math.abs(p[i + 1] - q[i + 1]) + Math.abs(p[i + 2] - q[i + 2])) / 3;
			sum += d;
			far += d > 48;
		}
		return [sum / (p.length / 4), far / (p.length / 4)];
	}, { a, b });
}

async function paint(browser, fn, arg) {
	const context = await browser.newContext();
	const page = await context.newPage();
	await page.setContent("<canvas></canvas>");
	await page.evaluate(() => {
		window.load = async (png, scale) => {
			const image = new Image();
			image.src = "data:image/png;base64," + png;
			await image.decode();
			const canvas = document.querySelector("canvas"), w = Math.round(image.width * scale), h = Math.round(image.height * scale);
			canvas.width = w;
			canvas.height = h;
			const c = canvas.getContext("2d");
			c.imageSmoothingQuality = "high";
			c.drawImage(image, 0, 0, w, h);
			return { c: c.getImageData(0, 0, w, h).data, w, h };
		};
	});
	const out = await page.evaluate(fn, arg);
	await context.close();
	return out;
}

// ---- colours with other kinds of vision: Machado, Oliveira and Fernandes 2009, in full; distances in CIE Lab

const VISION = {
	normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
	protan: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
	deutan: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881],
	tritan: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900],
};

function lab(hex, m) {
	const rgb = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
	const [r, g, b] = [0, 3, 6].map(k => Math.max(0, Math.min(1, m[k] * rgb[0] + m[k + 1] * rgb[1] + m[k + 2] * rgb[2])));
	const f = t => t > 216 / 24389 ? Math.cbrt(t) : (24389 / 27 * t + 16) / 116;
	const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047), y = f(0.2126 * r + 0.7152 * g + 0.0722 * b), z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
	return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

// The two of named colours that are nearest, with any kind of vision: [distance, one, other, vision]
export function nearest(colours) {
	let best = [Infinity];
	for (const [vision, m] of Object.entries(VISION)) {
		const all = Object.entries(colours).map(([name, hex]) => [name, lab(hex, m)]);
		for (let i = 0; i < all.length; i++)
			for (let k = 0; k < i; k++) {
				const d = Math.hypot(...all[i][1].map((v, c) => v - all[k][1][c]));
				if (d < best[0])
					best = [d, all[i][0], all[k][0], vision];
			}
	}
	return best;
}

export function contrast(a, b) {
	const light = hex => {
		const [r, g, bl] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * bl;
	};
	const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
	return (x + 0.05) / (y + 0.05);
}
