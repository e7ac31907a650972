-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
--
-- Wireshark dissector of extended mode (docs/extended-mode.md, datapath/wire/ext.h):
--
--   tshark    -X lua_script:tools/extended.lua -r capture.pcap
--   wireshark -X lua_script:tools/extended.lua capture.pcap
--
-- It takes the packets of UDP port 4791 whose opcode is one of the manufacturer's, 0xC0 to 0xFF.
-- All others go to the dissector that had the port before.

local ext = Proto("dpext", "RoCEv2 extended mode")

local FIRST = 0xC0
local BTH, RETH, ATOMIC, AETH, IMM, IETH, XDH, XAH, HELLO = 12, 16, 28, 4, 4, 4, 20, 28, 20
local FETH, ATOMIC_ACK, ICRC, HOP, DEMAND, GRANT, CREDIT = 4, 8, 4, 16, 20, 12, 4

-- Opcode of the RC original -> name, and the headers between XDH and payload.
local RC = {
	[0x00] = { "SEND First" },
	[0x01] = { "SEND Middle" },
	[0x02] = { "SEND Last" },
	[0x03] = { "SEND Last Immediate", "imm" },
	[0x04] = { "SEND Only" },
	[0x05] = { "SEND Only Immediate", "imm" },
	[0x06] = { "WRITE First", "reth" },
	[0x07] = { "WRITE Middle", "reth" },
	[0x08] = { "WRITE Last", "reth" },
	[0x09] = { "WRITE Last Immediate", "reth", "imm" },
	[0x0A] = { "WRITE Only", "reth" },
	[0x0B] = { "WRITE Only Immediate", "reth", "imm" },
	[0x0C] = { "READ Request", "reth" },
	[0x0D] = { "READ Response First" },
	[0x0E] = { "READ Response Middle" },
	[0x0F] = { "READ Response Last" },
	[0x10] = { "READ Response Only" },
	[0x11] = { "ACK", "aeth" },
	[0x12] = { "ATOMIC ACK", "aeth", "atomic_ack" },
	[0x13] = { "COMPARE SWAP", "atomic" },
	[0x14] = { "FETCH ADD", "atomic" },
	[0x16] = { "SEND Last Invalidate", "ieth" },
	[0x17] = { "SEND Only Invalidate", "ieth" },
	[0x1C] = { "FLUSH", "feth", "reth" },
	[0x1D] = { "ATOMIC WRITE", "reth" },
}
local ACK, ATOMIC_RESPONSE = 0xD1, 0xD2
local RESPONSES = { [0xCD] = true, [0xCE] = true, [0xCF] = true, [0xD0] = true }
local CONTROL = {
	[0xE0] = "HELLO", [0xE1] = "HELLO Reply", [0xE2] = "PROBE", [0xE3] = "PROBE Reply",
	[0xE4] = "DEMAND", [0xE5] = "GRANT", [0xE6] = "CREDIT",
}

local BUNDLES = { [0xE7] = "WRITE Bundle", [0xE8] = "SEND Bundle" }

local names = {}
for code, row in pairs(RC) do names[FIRST + code] = row[1] end
for code, name in pairs(CONTROL) do names[code] = name end
for code, name in pairs(BUNDLES) do names[code] = name end

local function u24(name, label) return ProtoField.uint24("dpext." .. name, label, base.DEC) end
local function u32(name, label, shown)
	return ProtoField.uint32("dpext." .. name, label, shown or base.DEC)
end
local function u64(name, label) return ProtoField.uint64("dpext." .. name, label, base.HEX) end

local f = {
	opcode = ProtoField.uint8("dpext.opcode", "Opcode", base.HEX, names),
	qpn = ProtoField.uint24("dpext.qpn", "Destination QPN", base.HEX),
	psn = u24("psn", "PSN"),
	ack_req = ProtoField.bool("dpext.ack_req", "AckReq", 8, nil, 0x80),
	ts = u32("xdh.ts_ns", "Sender's clock, ns"),
	rq_seq = u32("xdh.rq_seq", "Receives before this message"),
	psn_bytes = u32("xdh.psn_bytes", "Bytes of each PSN of the answer"),
	held = u32("xdh.held_ns", "Held by the responder, ns"),
	offset = u32("xdh.offset", "Offset in the message"),
	parts = u32("xdh.parts", "Messages in the bundle"),
	carried = ProtoField.bool("dpext.xdh.ack", "Carries an acknowledgement", 8, nil, 0x01),
	thin = ProtoField.uint8("dpext.xdh.thin", "Thinned acknowledgements", base.DEC, nil, 0x0E),
	records = ProtoField.uint8("dpext.xdh.records", "Room for records", base.DEC, nil, 0xF0),
	ack_psn = u24("xdh.ack_psn", "Acknowledged PSN"),
	ack_ts = u32("xdh.ack_ts_ns", "Echoed clock and hold time, ns"),
	va = u64("va", "Virtual address"),
	rkey = u32("rkey", "R_Key", base.HEX),
	length = u32("length", "Length of the message"),
	swap_add = u64("swap_add", "Swap or add"),
	compare = u64("compare", "Compare"),
	original = u64("original", "Original value"),
	syndrome = ProtoField.uint8("dpext.syndrome", "Syndrome", base.HEX),
	msn = u24("msn", "MSN"),
	imm = u32("imm", "Immediate", base.HEX),
	ieth = u32("invalidate", "R_Key to invalidate", base.HEX),
	feth = u32("feth", "FETH", base.HEX),
	echo = u32("xah.ts_echo_ns", "Echoed clock, ns"),
	delay = u32("xah.ack_delay_ns", "Held by the receiver, ns"),
	marked = u32("xah.marked", "Packets received with CE"),
	duplicates = u32("xah.duplicates", "Packets received again"),
	sack_base = u24("xah.sack_base", "PSN of the bitmap's first bit"),
	words = ProtoField.uint8("dpext.xah.words", "Words of bitmap"),
	n_trimmed = ProtoField.uint8("dpext.xah.n_trimmed", "Trimmed packets"),
	n_hops = ProtoField.uint8("dpext.xah.n_hops", "Telemetry records"),
	n_marked = ProtoField.uint8("dpext.xah.n_marked", "Marked packets"),
	arrived = u32("xah.arrived_ns", "Arrival of the newest packet, ns"),
	word = u32("xah.bitmap", "Bitmap", base.HEX),
	trimmed = u32("xah.trimmed_psn", "Trimmed PSN"),
	marked_psn = u32("xah.marked_psn", "Marked PSN"),
	queue = u32("hop.queue_bytes", "Queue, bytes"),
	hop_ts = u32("hop.ts_ns", "Switch's clock, ns"),
	tx_bytes = ProtoField.uint64("dpext.hop.tx_bytes", "Sent by the port, bytes"),
	rate = u24("hop.rate_mbps", "Rate, Mbit/s"),
	version = ProtoField.uint8("dpext.hello.version", "Version"),
	window = u24("hello.window_psns", "Window, PSNs"),
	features = u32("hello.features", "Features", base.HEX),
	hello_qpn = u32("hello.qpn", "Sender's QPN", base.HEX),
	segment = ProtoField.uint16("dpext.hello.segment", "Segment, bytes"),
	hello_flags = ProtoField.uint16("dpext.hello.flags", "Flags", base.HEX),
	hello_ts = u32("hello.ts_ns", "Clock, ns"),
	settled = u32("demand.settled", "Sent and no longer in flight, bytes"),
	wanted = u32("wanted", "Sent and wanted, bytes"),
	demand_rtt = u32("demand.rtt_ns", "Lowest time to the GRANT, ns"),
	credits_heard = u32("demand.heard", "CREDITs received"),
	granted = u32("grant.granted", "Granted, bytes"),
	grant_dscp = ProtoField.uint8("dpext.grant.dscp", "DSCP of what leaves by grants"),
	credit = u32("credit.number", "Number of the CREDIT"),
	payload = ProtoField.bytes("dpext.payload", "Payload"),
	icrc = u32("icrc", "ICRC", base.HEX),
}
ext.fields = f

local cut = ProtoExpert.new("dpext.cut", "The packet ends inside a header",
	expert.group.MALFORMED, expert.severity.ERROR)
ext.experts = { cut }

-- Headers behind XDH: bytes, and what adds them to the tree at an offset.
local HEADERS = {
	reth = { RETH, function(tree, b)
		tree:add(f.va, b(0, 8)); tree:add(f.rkey, b(8, 4)); tree:add(f.length, b(12, 4))
	end },
	atomic = { ATOMIC, function(tree, b)
		tree:add(f.va, b(0, 8)); tree:add(f.rkey, b(8, 4))
		tree:add(f.swap_add, b(12, 8)); tree:add(f.compare, b(20, 8))
	end },
	atomic_ack = { ATOMIC_ACK, function(tree, b) tree:add(f.original, b(0, 8)) end },
	aeth = { AETH, function(tree, b)
		tree:add(f.syndrome, b(0, 1)); tree:add(f.msn, b(1, 3))
	end },
	imm = { IMM, function(tree, b) tree:add(f.imm, b(0, 4)) end },
	ieth = { IETH, function(tree, b) tree:add(f.ieth, b(0, 4)) end },
	feth = { FETH, function(tree, b) tree:add(f.feth, b(0, 4)) end },
}

local function add_hop(tree, b)
	local hop = tree:add(ext, b, "Telemetry record")
	hop:add(f.queue, b(0, 4)); hop:add(f.hop_ts, b(4, 4))
	hop:add(f.tx_bytes, b(8, 5)); hop:add(f.rate, b(13, 3))
end

-- Returns how many bytes the XDH and its room for telemetry have.
local function add_xdh(tree, b, opcode)
	local xdh = tree:add(ext, b(0, XDH), "XDH")
	xdh:add(f.ts, b(0, 4))
	xdh:add(RESPONSES[opcode] and f.held or opcode == 0xCC and f.psn_bytes or f.rq_seq, b(4, 4))
	xdh:add(BUNDLES[opcode] and f.parts or f.offset, b(8, 4))
	if RESPONSES[opcode] then return XDH end
	xdh:add(f.carried, b(15, 1)); xdh:add(f.thin, b(15, 1)); xdh:add(f.records, b(15, 1))
	if b(15, 1):bitfield(7, 1) == 1 then
		xdh:add(f.ack_psn, b(12, 3)); xdh:add(f.ack_ts, b(16, 4))
	end
	local records = b(15, 1):bitfield(0, 4)
	if records == 0 then return XDH end
	local filled = math.min(b(XDH, 1):uint(), records)
	for i = 0, filled - 1 do add_hop(tree, b(XDH + 4 + i * HOP, HOP)) end
	return XDH + 4 + records * HOP
end

-- Returns the bytes of the XAH and its lists.
local function add_xah(tree, b)
	local xah = tree:add(ext, b(0, XAH), "XAH")
	xah:add(f.echo, b(0, 4)); xah:add(f.delay, b(4, 4)); xah:add(f.marked, b(8, 4))
	xah:add(f.duplicates, b(12, 4)); xah:add(f.sack_base, b(16, 3)); xah:add(f.words, b(19, 1))
	xah:add(f.n_trimmed, b(20, 1)); xah:add(f.n_hops, b(21, 1)); xah:add(f.n_marked, b(22, 1))
	xah:add(f.arrived, b(24, 4))
	local at = XAH
	for _, list in ipairs({ { 19, f.word }, { 20, f.trimmed }, { 22, f.marked_psn } }) do
		for _ = 1, b(list[1], 1):uint() do
			tree:add(list[2], b(at, 4))
			at = at + 4
		end
	end
	for _ = 1, b(21, 1):uint() do
		add_hop(tree, b(at, HOP))
		at = at + HOP
	end
	return at
end

local function add_hello(tree, b)
	tree:add(f.version, b(0, 1)); tree:add(f.window, b(1, 3)); tree:add(f.features, b(4, 4))
	tree:add(f.hello_qpn, b(8, 4)); tree:add(f.segment, b(12, 2)); tree:add(f.hello_flags, b(14, 2))
	tree:add(f.hello_ts, b(16, 4))
	return HELLO
end

local function add_demand(tree, b)
	tree:add(f.settled, b(0, 4)); tree:add(f.wanted, b(4, 4)); tree:add(f.demand_rtt, b(8, 4))
	tree:add(f.credit, b(12, 4)); tree:add(f.credits_heard, b(16, 4))
	return DEMAND
end

local function add_grant(tree, b)
	tree:add(f.granted, b(0, 4)); tree:add(f.wanted, b(4, 4)); tree:add(f.grant_dscp, b(8, 1))
	return GRANT
end

local function add_credit(tree, b)
	tree:add(f.credit, b(0, 4))
	return CREDIT
end

local CONTROL_HEADERS = {
	[0xE0] = add_hello, [0xE1] = add_hello, [0xE4] = add_demand, [0xE5] = add_grant,
	[0xE6] = add_credit,
}

-- Adds each message of a bundle; returns where the last one ends.
local function add_bundle(tree, b, opcode)
	local first, at = b(9, 3):uint(), BTH + add_xdh(tree, b(BTH), opcode)
	for i = 0, b(BTH + 8, 4):uint() - 1 do
		local head = opcode == 0xE7 and RETH or 4
		local length = b(at + head - 4, 4):uint()
		local text = string.format("Message, PSN %d", (first + i) % 2 ^ 24)
		local part = tree:add(ext, b(at, head + length), text)
		if opcode == 0xE7 then HEADERS.reth[2](part, b(at, RETH)) else part:add(f.length, b(at, 4)) end
		if length > 0 then part:add(f.payload, b(at + head, length)) end
		at = at + head + math.ceil(length / 4) * 4
	end
	return at
end

-- Adds what lies behind the BTH; returns where the payload begins.
local function add_headers(tree, b, opcode)
	local at, row = BTH, RC[opcode - FIRST]
	if BUNDLES[opcode] then return add_bundle(tree, b, opcode) end
	if CONTROL[opcode] then
		local add = CONTROL_HEADERS[opcode]
		return add and at + add(tree, b(at)) or at
	end
	if row == nil then return at end
	if opcode ~= ACK and opcode ~= ATOMIC_RESPONSE then at = at + add_xdh(tree, b(at), opcode) end
	for i = 2, #row do
		local header = HEADERS[row[i]]
		header[2](tree, b(at, header[1]))
		at = at + header[1]
	end
	if opcode == ACK then at = at + add_xah(tree, b(at)) end
	return at
end

local function dissect(b, pinfo, root)
	local opcode = b(0, 1):uint()
	local psn, qpn = b(9, 3):uint(), b(5, 3):uint()
	local tree = root:add(ext, b(), "RoCEv2 extended mode")
	pinfo.cols.protocol = "RoCEv2-X"
	local name = names[opcode] or string.format("Opcode 0x%02x", opcode)
	pinfo.cols.info = string.format("%s QPN=0x%06x PSN=%d", name, qpn, psn)
	tree:add(f.opcode, b(0, 1)); tree:add(f.qpn, b(5, 3))
	tree:add(f.ack_req, b(8, 1)); tree:add(f.psn, b(9, 3))
	local fine, at = pcall(add_headers, tree, b, opcode)
	if not fine then
		tree:add_proto_expert_info(cut)
		return
	end
	local left = b:len() - at - ICRC
	if left > 0 then tree:add(f.payload, b(at, left)) end
	if left >= 0 then tree:add(f.icrc, b(b:len() - ICRC, ICRC)) end
end

local ports = DissectorTable.get("udp.port")
local before = ports:get_dissector(4791)

function ext.dissector(b, pinfo, root)
	if b:len() >= BTH and b(0, 1):uint() >= FIRST then
		dissect(b, pinfo, root)
		return b:len()
	end
	return before and before:call(b, pinfo, root) or 0
end

ports:add(4791, ext)
