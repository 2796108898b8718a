// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The history of a recording in an exported page: live blocks at any moment, and blocks allocated and freed between
// two moments. A moment is the state after an event; -1 is before the first event. A query starts from the result of
// the last one, so moving a brush costs only the distance moved.
"use strict";
(() => {
const NEVER = 0xffffffff;
const CHECKPOINT = 16384;	// moments between checkpoints
const CHECKPOINTS_MAX = 64 << 20; // limit of all checkpoints, in bytes

function fromBase64(text) {
	if (Uint8Array.fromBase64)
		return Uint8Array.fromBase64(text.trim());
	const binary = atob(text.trim()), n = binary.length, bytes = new Uint8Array(n);
	for (let i = 0; i < n; i++)
		bytes[i] = binary.charCodeAt(i);
	return bytes;
}

async function inflate(bytes) {
	const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
	return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Decodes LEB128 numbers. Most have one or two bytes.
function decode(bytes, at, n, out) {
	for (let i = 0; i < n; i++) {
		let b = bytes[at++];
		if (b < 128) {
			out[i] = b;
			continue;
		}
		let v = b & 127;
		b = bytes[at++];
		v |= (b & 127) << 7;
		if (b >= 128) {
			b = bytes[at++];
			v |= (b & 127) << 14;
			for (let f = 2097152; b >= 128; f *= 128) {
				b = bytes[at++];
				v += (b & 127) * f;
			}
		}
		out[i] = v;
	}
	return out;
}


// Decodes zigzag: 0, 1, 2, 3 ... become 0, -1, 1, -2 ...
function unzigzag(a) {
	for (let i = 0; i < a.length; i++)
		a[i] = a[i] % 2 ? -(a[i] + 1) / 2 : a[i] / 2;
	return a;
}
function addUp(a) {
	for (let i = 1; i < a.length; i++)
		a[i] += a[i - 1];
	return a;
}

// The first index in a sorted array, between lo and hi, with a value above v.
function over(a, v, lo = 0, hi = a.length) {
	while (lo < hi) {
		const mid = (lo + hi) >>> 1;
		if (a[mid] <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

class Columns {
	constructor(bytes) {
		const n = bytes[0] + bytes[1] * 256 + bytes[2] * 65536 + bytes[3] * 16777216;
		this.bytes = bytes;
		this.directory = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + n)));
		this.at = new Map();
		let at = 4 + n;
		for (const [name, length, count, zigzag] of this.directory.columns) {
			this.at.set(name, { at, count, zigzag });
			at += length;
		}
	}
	has(name) {
		return this.at.has(name);
	}
	get(name, Type) {
		const c = this.at.get(name);
		if (!c)
			return new Type(0);
		const a = decode(this.bytes, c.at, c.count, new Type(c.count));
		return c.zigzag ? unzigzag(a) : a;
	}
	// Expands a column of changes, given as distances and differences, to n values.
	steps(name, n) {
		const at = this.get(name + ".at", Float64Array), by = this.get(name + ".by", Float64Array);
		const a = new Float64Array(n);
		let place = 0, v = 0;
		for (let i = 0; i < at.length; i++) {
			a.fill(v, place, place + at[i]);
			place += at[i];
			v += by[i];
		}
		return a.fill(v, place);
	}
}

// Blocks, moments and segments of a device. In block arrays, moments count from 1, and 0 is before the first moment.
class Device {
	constructor(columns, i, classRow, classSize, rows) {
		const get = (name, Type) => columns.get(i + "." + name, Type);
		this.rows = rows;
		this.ns = addUp(get("time", Float64Array));
		this.times = this.ns.map(t => t / 1e9);
		this.n = this.ns.length;
		this.reserved = columns.steps(i + ".reserved", this.n + 1);
		this.unknown = columns.steps(i + ".unknown", this.n + 1);
		this.rest = columns.steps(i + ".rest", this.n + 1);
		this.readBlocks(get, classRow, classSize, columns.has(i + ".addr"));
		this.allocated = this.sumUp();
		this.curve = columns.has(i + ".curve.number") ? this.readCurve(get) : null;
		this.readPassed(get, classRow, classSize);
		this.readSegments(get("segments", Float64Array));
		// Position of the live set.
		this.m = -1;
		this.bytes = new Float64Array(rows);
		this.count = new Uint32Array(rows);
		for (let b = 0; b < this.bornAt[1]; b++) {
			this.bytes[this.row[b]] += this.size[b];
			this.count[this.row[b]]++;
		}
		this.checkpoints = new Map([[-1, { bytes: this.bytes.slice(), count: this.count.slice() }]]);
		this.every = Math.max(CHECKPOINT, Math.ceil(this.n * rows * 12 / CHECKPOINTS_MAX));
	}

	readBlocks(get, classRow, classSize, addresses) {
		const born = addUp(get("born", Uint32Array)), kin = get("kin", Uint32Array), gone = get("life", Uint32Array);
		const n = born.length, moments = this.n;
		const row = new Uint32Array(n), size = new Float64Array(n);
		const bornAt = new Uint32Array(moments + 2), goneAt = new Uint32Array(moments + 3);
		for (let b = 0; b < n; b++) {
			row[b] = classRow[kin[b]];
			size[b] = classSize[kin[b]];
			gone[b] = gone[b] ? born[b] + gone[b] : NEVER;
			bornAt[born[b] + 1]++;
			if (gone[b] !== NEVER)
				goneAt[gone[b] + 2]++;
		}
		// Blocks bornAt[m] up to bornAt[m + 1] are allocated at m; goneOrder lists the freed ones from goneAt[m] up to goneAt[m + 1].
		addUp(bornAt);
		addUp(goneAt);
		const order = new Uint32Array(goneAt[moments + 2]);
		for (let b = 0; b < n; b++)
			if (gone[b] !== NEVER)
				order[goneAt[gone[b] + 1]++] = b;
		Object.assign(this, { row, size, born, gone, bornAt, goneAt, goneOrder: order });
		this.address = null;
		if (addresses) {
			const all = addUp(get("addr.of", Float64Array)), number = get("addr", Uint32Array);
			this.address = new Float64Array(n);
			for (let b = 0; b < n; b++)
				this.address[b] = all[number[b]];
		}
	}

	// Reads the curve between chosen moments, in time intervals.
	readCurve(get) {
		const number = addUp(get("curve.number", Float64Array)), last = addUp(get("curve.last", Float64Array));
		const width = get("curve.width", Float64Array)[0] / 1e9, reserved = get("curve.reserved", Float64Array);
		return {
			width, begin: number.map(k => k * width), last, min: get("curve.min", Float64Array).map((v, k) => last[k] - v),
			max: get("curve.max", Float64Array).map((v, k) => last[k] + v), reserved, rlast: get("curve.rlast", Float64Array),
		};
	}

	// Lowest and highest values from t0 up to t1.
	curveExtremes(t0, t1) {
		const c = this.curve;
		let k = over(c.begin, t0) - 1;
		// Start with the value at t0, and include the whole interval that contains t0.
		let held = k < 0 ? this.allocated[0] : c.last[k], reserved = k < 0 ? this.reserved[0] : c.rlast[k];
		let least = held, most = held;
		if (k < 0 || c.begin[k] + c.width <= t0)
			k++;
		for (; k < c.begin.length && c.begin[k] < t1; k++) {
			least = Math.min(least, c.min[k]);
			most = Math.max(most, c.max[k]);
			reserved = Math.max(reserved, c.reserved[k]);
		}
		return [least, most, reserved];
	}

	// Reads blocks allocated and freed between two moments; they are stored at the later moment.
	readPassed(get, classRow, classSize) {
		const moment = addUp(get("pmoment", Uint32Array)), row = get("pkin", Uint32Array), count = get("pn", Uint32Array);
		const bytes = new Float64Array(row.length), at = new Uint32Array(this.n + 1);
		for (let i = 0; i < row.length; i++) {
			bytes[i] = count[i] * classSize[row[i]];
			row[i] = classRow[row[i]];
			at[moment[i] + 1]++;
		}
		this.passed = { at: addUp(at), row, count, bytes };
	}

	// Allocated bytes before the first moment and after each moment.
	sumUp() {
		const sum = new Float64Array(this.n + 1);
		for (let b = 0; b < this.row.length; b++) {
			sum[this.born[b]] += this.size[b];
			if (this.gone[b] !== NEVER)
				sum[this.gone[b]] -= this.size[b];
		}
		addUp(sum);
		for (let m = 0; m <= this.n; m++)
			sum[m] += this.unknown[m] + this.rest[m];
		return sum;
	}

	readSegments(a) {
		this.segments = [];
		for (let i = 0; i + 9 <= a.length; i += 9) {
			const flags = a[i + 5], told = !!(flags & 1);
			this.segments.push({
				address: a[i], size: a[i + 1], born: a[i + 2], gone: a[i + 3] || NEVER, range: a[i + 4],
				expandable: !!(flags & 2), kind: flags & 4 ? "small" : flags & 8 ? "large" : null,
				stream: told ? "0x" + a[i + 6].toString(16) : null, pool: told ? a[i + 7] + "," + a[i + 8] : null,
			});
		}
		this.segments.sort((a, b) => a.address - b.address || a.born - b.born);
	}

	keep() {
		if ((this.m + 1) % this.every === 0 && !this.checkpoints.has(this.m))
			this.checkpoints.set(this.m, { bytes: this.bytes.slice(), count: this.count.slice() });
	}

	// Moves the live set to moment m.
	go(m) {
		const { row, size, bytes, count, bornAt, goneAt, goneOrder } = this;
		const near = Math.floor((m + 1) / this.every) * this.every - 1;
		let from = near;
		while (!this.checkpoints.has(from))
			from -= this.every;
		if (Math.abs(m - this.m) > m - from) {
			bytes.set(this.checkpoints.get(from).bytes);
			count.set(this.checkpoints.get(from).count);
			this.m = from;
		}
		while (this.m < m) {
			const at = ++this.m + 1;
			for (let i = bornAt[at]; i < bornAt[at + 1]; i++) {
				bytes[row[i]] += size[i];
				count[row[i]]++;
			}
			for (let i = goneAt[at]; i < goneAt[at + 1]; i++) {
				const b = goneOrder[i];
				bytes[row[b]] -= size[b];
				count[row[b]]--;
			}
			this.keep();
		}
		while (this.m > m) {
			const at = this.m-- + 1;
			for (let i = bornAt[at]; i < bornAt[at + 1]; i++) {
				bytes[row[i]] -= size[i];
				count[row[i]]--;
			}
			for (let i = goneAt[at]; i < goneAt[at + 1]; i++) {
				const b = goneOrder[i];
				bytes[row[b]] += size[b];
				count[row[b]]++;
			}
		}
	}

	// Blocks allocated and freed after m0 up to m1. Starts from the last window if it is near.
	window(m0, m1) {
		let w = this.last;
		if (!w || Math.abs(m0 - w.m0) + Math.abs(m1 - w.m1) > m1 - m0) {
			const n = this.rows;
			w = this.last = {
				m0, m1: m0, allocated: new Float64Array(n), allocs: new Uint32Array(n), freed: new Float64Array(n),
				frees: new Uint32Array(n), kept: new Float64Array(n), keptCount: new Uint32Array(n),
			};
		}
		// Widen first, so that counts never become negative.
		while (w.m0 > m0)
			this.count1(w, w.m0--, 1, true);
		while (w.m1 < m1)
			this.count1(w, ++w.m1, 1, false);
		while (w.m0 < m0)
			this.count1(w, ++w.m0, -1, true);
		while (w.m1 > m1)
			this.count1(w, w.m1--, -1, false);
		return w;
	}

	// Adds moment m to the window, or removes it (sign -1), at its beginning (first) or end.
	count1(w, m, sign, first) {
		const { row, size, born, gone, goneOrder, passed } = this;
		for (let b = this.bornAt[m + 1]; b < this.bornAt[m + 2]; b++) {
			const r = row[b], v = sign * size[b];
			w.allocated[r] += v;
			w.allocs[r] += sign;
			if (!first || gone[b] > w.m1 + 1) {
				w.kept[r] += v;
				w.keptCount[r] += sign;
			}
		}
		for (let i = this.goneAt[m + 1]; i < this.goneAt[m + 2]; i++) {
			const b = goneOrder[i], r = row[b], v = sign * size[b];
			w.freed[r] += v;
			w.frees[r] += sign;
			if (!first && born[b] > w.m0 + 1) {
				w.kept[r] -= v;
				w.keptCount[r] -= sign;
			}
		}
		for (let i = passed.at[m]; i < passed.at[m + 1]; i++) {
			const r = passed.row[i], v = sign * passed.bytes[i], n = sign * passed.count[i];
			w.allocated[r] += v;
			w.freed[r] += v;
			w.allocs[r] += n;
			w.frees[r] += n;
		}
	}

	bound(m) {
		return Math.max(-1, Math.min(this.n - 1, Math.floor(m)));
	}
}

class History {
	constructor(head, columns) {
		const rows = columns.has("row.stack") ? columns.at.get("row.stack").count : 0;
		const classRow = columns.get("kin.row", Uint32Array), classSize = columns.get("kin.size", Float64Array);
		this.head = head;
		this.layers = columns.directory.layers;
		this.frames = this.readFrames(columns.directory);
		this.nodeFrame = columns.get("node.frame", Uint32Array);
		this.nodeParent = columns.get("node.parent", Uint32Array).map((back, i) => back ? i - back : NEVER);
		this.stacks = new Map();
		this.rows = this.readRows(columns, rows);
		this.devices = head.devices.map((d, i) => new Device(columns, i, classRow, classSize, rows));
	}

	readFrames({ frames, kinds }) {
		const all = [];
		for (let i = 0; i + 4 <= frames.length; i += 4)
			all.push({ name: frames[i], file: frames[i + 1], line: frames[i + 2], kind: kinds[frames[i + 3]] });
		return all;
	}

	readRows(columns, n) {
		const words = columns.directory.strings, rows = new Array(n);
		const text = name => columns.get("row." + name, Uint32Array), number = text;
		const device = number("device"), stack = number("stack"), file = text("file"), line = number("line");
		const func = text("function"), module = text("module"), cls = text("class"), root = text("root");
		const phase = text("phase"), category = text("category"), source = text("source"), name = text("name");
		const scope = text("scope"), thread = text("thread"), tid = number("tid"), before = number("before"), node = text("node"), holder = text("holder");
		const word = i => i ? words[i - 1] : null;
		for (let i = 0; i < n; i++)
			rows[i] = {
				device: device[i], stack: stack[i], file: word(file[i]), line: line[i], function: word(func[i]),
				module: word(module[i]), module_class: word(cls[i]), module_root: word(root[i]), phase: word(phase[i]),
				category: word(category[i]), source: word(source[i]), name: word(name[i]), thread: word(thread[i]),
				tid: tid[i], before_attach: !!before[i], node_class: word(node[i]), scope: word(scope[i]), holder: word(holder[i]),
			};
		return rows;
	}

	// Frames of a stack, outermost first.
	stack(id) {
		let frames = this.stacks.get(id);
		if (!frames) {
			frames = [];
			for (let i = id; i !== NEVER; i = this.nodeParent[i])
				frames.push(this.nodeFrame[i]);
			frames = Int32Array.from(frames.reverse());
			this.stacks.set(id, frames);
		}
		return frames;
	}

	// Times of the moments, in seconds.
	moments(dev) {
		return this.devices[dev].times;
	}

	// The last moment not after t.
	at(dev, t) {
		return over(this.devices[dev].ns, Math.round(t * 1e9)) - 1;
	}

	live(dev, moment) {
		const d = this.devices[dev], m = d.bound(moment);
		d.go(m);
		return {
			bytes: d.bytes.slice(), count: d.count.slice(), allocated: d.allocated[m + 1], reserved: d.reserved[m + 1],
			unknown: d.unknown[m + 1],
		};
	}

	// Figures at a moment. allocated = live blocks + unknown + rest; rest is 0 unless records were lost.
	figures(dev, moment) {
		const d = this.devices[dev], m = d.bound(moment) + 1;
		return { allocated: d.allocated[m], reserved: d.reserved[m], unknown: d.unknown[m], rest: d.rest[m] };
	}

	window(dev, from, to) {
		const d = this.devices[dev];
		const w = d.window(d.bound(Math.min(from, to)), d.bound(Math.max(from, to)));
		return {
			allocated: w.allocated.slice(), allocs: w.allocs.slice(), freed: w.freed.slice(), frees: w.frees.slice(),
			kept: w.kept.slice(), keptCount: w.keptCount.slice(),
		};
	}

	// Calls each(i, lo, hi) for every time bucket with its moments [lo, hi); empty: lo === hi.
	buckets(d, t0, t1, n, each) {
		const width = (t1 - t0) / n;
		let lo = over(d.times, t0);
		while (lo > 0 && d.times[lo - 1] === t0)
			lo--;
		for (let i = 0; i < n; i++) {
			const end = i + 1 === n ? t1 : t0 + (i + 1) * width;
			const hi = over(d.times, end, lo);
			each(i, lo, hi);
			lo = hi;
		}
	}

	series(dev, t0, t1, n) {
		const d = this.devices[dev];
		const t = new Float64Array(n), min = new Float64Array(n), max = new Float64Array(n), reserved = new Float64Array(n);
		this.buckets(d, t0, t1, n, (i, lo, hi) => {
			// Start with the value at the bucket's beginning.
			let least = d.allocated[lo], most = least, held = d.reserved[lo];
			for (let m = lo; m < hi; m++) {
				const a = d.allocated[m + 1], r = d.reserved[m + 1];
				if (a < least)
					least = a;
				if (a > most)
					most = a;
				if (r > held)
					held = r;
			}
			if (d.curve)
				[least, most, held] = d.curveExtremes(t0 + (t1 - t0) / n * i, t0 + (t1 - t0) / n * (i + 1));
			t[i] = t0 + (t1 - t0) / n * i;
			min[i] = least;
			max[i] = most;
			reserved[i] = held;
		});
		return { t, allocated_min: min, allocated_max: max, reserved_max: reserved };
	}

	// How to group rows, and the group of unknown memory.
	groupOf(key) {
		if (key === "category")
			return { of: r => r.category, unknown: "unknown" };
		if (key === "scope")
			return { of: r => r.scope || (r.before_attach ? Words.before() : Words.OUTSIDE), unknown: Words.before() };
		if (key === "phase")
			return { of: r => r.phase || Words.before(), unknown: Words.before() };
		return {
			// Group by the first part of the module's name, or by the class for the root module.
			of: r => r.module ? r.module.split(".", 1)[0] : r.module_class ? r.module_class + " (model)" :
				r.before_attach ? Words.before() : "(no module)",
			unknown: Words.before(),
		};
	}

	// Bytes of each group in time buckets, at the moment of the bucket with most allocated memory, so that they add up to the
	// bucket's allocated_max of series().
	stackedSeries(dev, t0, t1, n, key) {
		const d = this.devices[dev], { of, unknown } = this.groupOf(key), numbers = new Map();
		const number = name => {
			if (!numbers.has(name))
				numbers.set(name, numbers.size);
			return numbers.get(name);
		};
		const group = Uint32Array.from(this.rows, r => r.device === dev ? number(of(r)) : 0);
		const rest = d.unknown.some(v => v) ? number(unknown) : -1;
		const now = new Float64Array(numbers.size), bytes = [...numbers].map(() => new Float64Array(n));
		const t = new Float64Array(n);
		let at = over(d.times, t0) - 1;
		d.go(at);
		for (let r = 0; r < this.rows.length; r++)
			now[group[r]] += d.bytes[r];
		const advance = to => {
			if (to <= at)
				return;
			for (let b = d.bornAt[at + 2]; b < d.bornAt[to + 2]; b++)
				now[group[d.row[b]]] += d.size[b];
			for (let k = d.goneAt[at + 2]; k < d.goneAt[to + 2]; k++) {
				const b = d.goneOrder[k];
				now[group[d.row[b]]] -= d.size[b];
			}
			at = to;
		};
		this.buckets(d, t0, t1, n, (i, lo, hi) => {
			let most = Math.max(at, lo - 1);
			for (let m = most + 1; m < hi; m++)
				if (d.allocated[m + 1] > d.allocated[most + 1])
					most = m;
			advance(most);
			for (let g = 0; g < now.length; g++)
				bytes[g][i] = now[g] + (g === rest ? d.unknown[at + 1] : 0);
			advance(hi - 1);
			t[i] = t0 + (t1 - t0) / n * i;
		});
		return { t, names: [...numbers.keys()], bytes };
	}

	blocks(dev) {
		const d = this.devices[dev];
		if (!d.columns)
			d.columns = {
				n: d.row.length, row: d.row, size: d.size, born: Int32Array.from(d.born, m => m - 1),
				gone: d.gone.map(m => m === NEVER ? NEVER : m - 1), address: d.address,
			};
		return d.columns;
	}

	// Adjacent mappings in one reserved range form one segment.
	segments(dev, moment) {
		const d = this.devices[dev], at = d.bound(moment) + 1, all = [];
		let last = null;
		for (const s of d.segments) {
			if (s.born > at || s.gone <= at)
				continue;
			if (last && s.expandable && last.expandable && last.address + last.size === s.address && last.range === s.range &&
			    (s.stream === null || last.stream === null || (s.stream === last.stream && s.pool === last.pool))) {
				last.size += s.size;
				last.stream = last.stream === null ? s.stream : last.stream;
				last.pool = last.pool === null ? s.pool : last.pool;
				continue;
			}
			last = {
				address: s.address, size: s.size, expandable: s.expandable, stream: s.stream, pool: s.pool, kind: s.kind,
				range: s.range,
			};
			all.push(last);
		}
		return all;
	}
}

const Data = {
	async open(head, base64) {
		return new History(head, new Columns(await inflate(fromBase64(base64))));
	},
};
if (typeof window !== "undefined")
	window.Data = Data;
if (typeof module !== "undefined")
	module.exports = Data;
})();
