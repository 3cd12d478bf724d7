-- What scripts find: Envoy's stream handle, and of Lua's libraries what cannot hold up or end the process.

local token, spent = ...
local yield, error, type = coroutine.yield, error, type

local match, raw_tostring = string.match, tostring

-- A script that has used up its instructions is not to go on by catching the error. What is caught is a text, as in Envoy.
local function guarded(is_well, ...)
    spent()
    if not is_well and type((...)) == "userdata" then
        local text = match(raw_tostring((...)), "^[^\n]*")
        return is_well, match(text, "^runtime error: (.*)") or text
    end
    return is_well, ...
end

local raw_pcall, raw_xpcall, raw_resume = pcall, xpcall, coroutine.resume

function pcall(...)
    return guarded(raw_pcall(...))
end

function xpcall(...)
    return guarded(raw_xpcall(...))
end

function coroutine.resume(...)
    return guarded(raw_resume(...))
end

-- A finalizer runs where nothing counts its instructions.
local raw_setmetatable, rawget = setmetatable, rawget

function setmetatable(table, metatable)
    if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
        error("finalizers are not there", 2)
    end
    return raw_setmetatable(table, metatable)
end

-- Precompiled code is not checked by Lua.
local raw_load = load

function load(chunk, name, _, ...)
    return raw_load(chunk, name, "t", ...)
end

string.dump = nil
dofile, loadfile, collectgarbage = nil, nil, nil
os = { clock = os.clock, date = os.date, difftime = os.difftime, getenv = os.getenv, time = os.time }

-- What Lua 5.1 has by other names.
loadstring = load
unpack = table.unpack
table.getn = function(list) return #list end
math.pow = function(base, exponent) return base ^ exponent end

-- There a number has no other form when it is whole.
local kind, format = math.type, string.format

function tostring(...)
    local value = ...
    if kind(value) == "float" then
        return format("%.14g", value)
    end
    return raw_tostring(...)
end

local function signed(number)
    number = number & 0xffffffff
    return number >= 0x80000000 and number - 0x100000000 or number
end

local function whole(number)
    return math.tointeger(number) or math.floor(number)
end

local function folded(combine)
    return function(first, ...)
        local all = whole(first)
        for _, other in ipairs({ ... }) do
            all = combine(all, whole(other))
        end
        return signed(all)
    end
end

bit = {
    tobit = function(number) return signed(whole(number)) end,
    bnot = function(number) return signed(~whole(number)) end,
    band = folded(function(one, other) return one & other end),
    bor = folded(function(one, other) return one | other end),
    bxor = folded(function(one, other) return one ~ other end),
    lshift = function(number, by) return signed((whole(number) & 0xffffffff) << (by & 31)) end,
    rshift = function(number, by) return signed((whole(number) & 0xffffffff) >> (by & 31)) end,
    arshift = function(number, by) return signed(signed(whole(number)) // (1 << (by & 31))) end,
    tohex = function(number) return string.format("%08x", whole(number) & 0xffffffff) end,
}

EnvoyTimestampResolution = { MILLISECOND = 0, MICROSECOND = 1 }

-- What the worker answers to a question: an error, or values.
local function settled(failed, ...)
    if failed ~= nil then
        error(failed, 3)
    end
    return ...
end

local Handle = {}
Handle.__index = Handle

for _, name in ipairs({
    "headers", "metadata", "filterContext", "route", "virtualHost", "streamInfo", "connection", "connectionStreamInfo",
    "timestamp", "timestampString", "base64Escape", "clearRouteCache", "setUpstreamOverrideHost", "importPublicKey",
    "verifySignature",
}) do
    Handle[name] = function(self, ...)
        local stream = self[1]
        return stream[name](stream, ...)
    end
end

for level, name in ipairs({ "logTrace", "logDebug", "logInfo", "logWarn", "logErr", "logCritical" }) do
    Handle[name] = function(self, text)
        self[1]:log(level, text)
    end
end

function Handle:body(always)
    return settled(yield(token, "body", always))
end

function Handle:bodyChunks()
    return function()
        return settled(yield(token, "chunk"))
    end
end

function Handle:trailers()
    return settled(yield(token, "trailers"))
end

function Handle:respond(headers, body)
    return settled(yield(token, "respond", headers, body))
end

local options = {
    asynchronous = true, timeout_ms = true, trace_sampled = true, return_duplicate_headers = true, send_xff = true,
}

-- Without a time there is no limit.
local function milliseconds(time)
    if time ~= nil and math.floor(time) < 0 then
        error("http call timeout must be >= 0", 3)
    end
    return time and math.floor(time)
end

function Handle:httpCall(cluster, headers, body, timeout, asynchronous)
    local duplicates, sampled = false, nil
    if type(timeout) == "table" then
        for name in pairs(timeout) do
            if not options[name] then
                error('"' .. tostring(name) .. '" is not valid key for httpCall() options', 2)
            end
        end
        sampled, duplicates = timeout.trace_sampled, timeout.return_duplicate_headers
        timeout, asynchronous = milliseconds(timeout.timeout_ms), timeout.asynchronous
    elseif asynchronous ~= nil and type(asynchronous) ~= "boolean" then
        error("http call asynchronous flag must be 'true', 'false', or empty", 2)
    elseif type(timeout) ~= "number" then
        error("bad argument #4 to 'httpCall' (number expected, got " .. type(timeout) .. ")", 2)
    else
        timeout = milliseconds(timeout)
    end
    local question = asynchronous and "send" or "call"
    return settled(yield(token, question, cluster, headers, body, timeout, sampled, duplicates and true or false))
end

return function(stream)
    return raw_setmetatable({ stream }, Handle)
end
