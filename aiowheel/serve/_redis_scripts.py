"""The Lua scripts of the topics in Redis. Rank 5.

Keys, all in the cluster slot of the counters:

- `meta`: hash of the server's run id, the name of the history, the last change and the totals
- `t:NAME`: hash of a topic's epoch, version, number of kept messages and their size in bytes
- `m:NAME`: stream of a topic's messages; the version is the id of the entry
- `order`, `oldest`: sorted sets of the topics with messages, by the last change and by the time of
  the oldest message
- `used`, `removed`: sorted sets of topics, by the time of the last use and of the removal

Times are milliseconds of the server's clock. `RedisCounters.script` provides the functions
`advance` and `forget`, and passes the arguments from ARGV[3] on.
"""

from __future__ import annotations

from aiowheel.serve._topics import OVERHEAD

NAME = "aiowheel_topic"  #: name of the counters

# ARGV[3]: run id of the server. ARGV[4]: "kept" if that run has every write that earlier runs had
# confirmed. ARGV[5]: name for a new history. A new history numbers its changes from the time in
# microseconds, so that it never reuses a number of a lost history.
_PRELUDE = f"""
local P, OVERHEAD = '{{{NAME}}}:', {OVERHEAD}
local META = P .. 'meta'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local meta = redis.call('HMGET', META, 'run', 'history', 'change')
local history = meta[2]
local function text(number) return string.format('%.0f', number) end
if meta[1] ~= run then
  if meta[1] and ARGV[3] ~= run then return {{'run', run}} end
  redis.call('HSET', META, 'run', run)
  if not history or ARGV[4] ~= 'kept' then
    history = ARGV[5]
    local change = math.max(tonumber(meta[3] or 0) + 1, now * 1000)
    redis.call('HSET', META, 'history', history, 'change', text(change))
    if meta[1] then begin_anew() end
  end
end
local function shown(epoch) return string.sub(redis.sha1hex(epoch .. history), 1, 8) end
local function next_change() return redis.call('HINCRBY', META, 'change', 1) end

local function load(name)
  local found = redis.call('HMGET', P .. 't:' .. name, 'epoch', 'version', 'kept', 'size')
  if not found[1] then return nil end
  return {{epoch = found[1], version = tonumber(found[2]), kept = tonumber(found[3]),
           size = tonumber(found[4])}}
end

-- Drops the oldest messages of a topic while must(topic, time of the oldest) holds.
local function drop(name, topic, must)
  local key, size, kept = P .. 'm:' .. name, topic.size, topic.kept
  local more = true
  while more and topic.kept > 0 do
    local before = topic.kept
    local rows = redis.call('XRANGE', key, '-', '+', 'COUNT', 50)
    -- Another client has deleted the stream. Without this line the loop would not end.
    if #rows == 0 then topic.kept, topic.size = 0, 0 end
    for _, row in ipairs(rows) do
      more = must(topic, tonumber(row[2][2]))
      if not more then break end
      topic.kept = topic.kept - 1
      topic.size = topic.size - #row[2][4] - OVERHEAD
    end
    if topic.kept < before then
      redis.call('XTRIM', key, 'MAXLEN', text(topic.kept))
      topic.moved = true
    end
  end
  redis.call('HINCRBY', META, 'size', text(topic.size - size))
  redis.call('HINCRBY', META, 'dropped', text(kept - topic.kept))
end

local function save(name, topic)
  redis.call('HSET', P .. 't:' .. name, 'epoch', topic.epoch, 'version', text(topic.version),
             'kept', text(topic.kept), 'size', text(topic.size))
  if topic.kept == 0 then
    redis.call('ZREM', P .. 'order', name)
    redis.call('ZREM', P .. 'oldest', name)
  elseif topic.moved then
    local first = redis.call('XRANGE', P .. 'm:' .. name, '-', '+', 'COUNT', 1)[1]
    redis.call('ZADD', P .. 'oldest', first[2][2], name)
  end
end

local function remove(name, topic, change, expired)
  redis.call('DEL', P .. 't:' .. name, P .. 'm:' .. name)
  for _, set in ipairs({{'order', 'oldest', 'used'}}) do redis.call('ZREM', P .. set, name) end
  redis.call('ZADD', P .. 'removed', text(now), name)
  redis.call('HINCRBY', META, 'topics', -1)
  redis.call('HINCRBY', META, 'size', text(0 - topic.size))
  redis.call('HINCRBY', META, 'expired', expired)
  redis.call('HINCRBY', META, 'dropped', text(expired * topic.kept))
  advance({{[name] = change}})
end

-- Removes a topic whose hash is lost: Redis has evicted it, or another client has deleted it.
local function remove_lost(name, change)
  local key = P .. 'm:' .. name
  redis.call('DEL', P .. 't:' .. name)  -- for a Redis that is out of memory, see REMOVE
  local topic = {{kept = redis.call('XLEN', key), size = 0}}
  drop(name, topic, function () return true end)
  topic.size = 0  -- `drop` has subtracted the size
  remove(name, topic, change or next_change(), 0)
end
"""

PREPARE = _PRELUDE + "return {''}"

# ARGV[6..9]: limits of topics, of messages and of bytes per topic, and of all bytes. ARGV[10]:
# random text for epochs. Then name and data of each message. Returns epoch and version of each
# message, or an empty list for a refused one.
APPEND = (
    _PRELUDE
    + """
local most_topics, most_messages = tonumber(ARGV[6]), tonumber(ARGV[7])
local most_bytes, most_in_all = tonumber(ARGV[8]), tonumber(ARGV[9])
local change = next_change()
local count = tonumber(redis.call('HGET', META, 'topics') or 0)
local topics, answers, advances = {}, {}, {}
local made, added, published = 0, 0, 0
for i = 11, #ARGV, 2 do
  local name, data = ARGV[i], ARGV[i + 1]
  local topic = topics[name] or load(name)
  if not topic and redis.call('ZSCORE', P .. 'used', name) then
    remove_lost(name, change)
    count = count - 1
  end
  if not topic and count + made < most_topics then
    made = made + 1
    local epoch = string.sub(redis.sha1hex(ARGV[10] .. i), 1, 8)
    topic = {epoch = epoch, version = 0, kept = 0, size = 0}
  end
  if topic then
    topics[name] = topic
    topic.moved = topic.moved or topic.kept == 0
    topic.version, topic.kept = topic.version + 1, topic.kept + 1
    topic.size, added = topic.size + #data + OVERHEAD, added + #data + OVERHEAD
    published = published + 1
    redis.call('XADD', P .. 'm:' .. name, text(topic.version) .. '-0', 't', text(now), 'd', data)
    answers[#answers + 1] = {shown(topic.epoch), topic.version}
    advances[name] = change
  else
    answers[#answers + 1] = {}
  end
end
redis.call('HINCRBY', META, 'topics', made)
redis.call('HINCRBY', META, 'published', published)
redis.call('HINCRBY', META, 'size', text(added))
for name, topic in pairs(topics) do
  drop(name, topic, function (each)
    return each.kept > 1 and (each.kept > most_messages or each.size > most_bytes)
  end)
  save(name, topic)
  redis.call('ZADD', P .. 'order', text(change), name)
  redis.call('ZADD', P .. 'used', text(now), name)
end
local size = tonumber(redis.call('HGET', META, 'size'))
while size > most_in_all do
  local order = redis.call('ZRANGE', P .. 'order', 0, 1)
  if #order < 2 then break end
  local topic = load(order[1])
  if topic then
    local before = topic.size
    drop(order[1], topic, function (each) return size - before + each.size > most_in_all end)
    save(order[1], topic)
  else
    remove_lost(order[1], change)
  end
  size = tonumber(redis.call('HGET', META, 'size'))
end
advance(advances)
return {'', answers}
"""
)

# ARGV[6]: milliseconds for which a message is kept. Then name, version, epoch and maximum bytes of
# each read; an empty string means no epoch, or no maximum. Returns the last change, the time up to
# which messages are too old, and epoch, version and messages of each topic, or an empty list for a
# missing topic.
READ = (
    _PRELUDE
    + """
local too_old = now - tonumber(ARGV[6])
local answers = {}
for i = 7, #ARGV, 4 do
  local name, since, most = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3])
  local topic = load(name)
  if not topic then
    answers[#answers + 1] = {}
  else
    local epoch = shown(topic.epoch)
    if since > topic.version or (ARGV[i + 2] ~= '' and ARGV[i + 2] ~= epoch) then since = 0 end
    local messages, bytes = {}, 0
    repeat
      local start = text(since + 1) .. '-0'
      local rows = redis.call('XRANGE', P .. 'm:' .. name, start, '+', 'COUNT', 50)
      for _, row in ipairs(rows) do
        since = tonumber(string.match(row[1], '%d+'))
        if tonumber(row[2][2]) > too_old then
          messages[#messages + 1] = since
          messages[#messages + 1] = row[2][2]
          messages[#messages + 1] = row[2][4]
          bytes = bytes + #row[2][4]
          if most and bytes > most then break end
        end
      end
    until #rows < 50 or (most and bytes > most)
    answers[#answers + 1] = {epoch, topic.version, messages}
  end
end
return {'', redis.call('HGET', META, 'change'), text(too_old), answers}
"""
)

REMOVE = (
    _PRELUDE
    + """
local topic = load(ARGV[6])
if not topic then return {'', 0} end
-- DEL first: a Redis that is out of memory allows a script to write only after a DEL.
redis.call('DEL', P .. 'm:' .. ARGV[6])
remove(ARGV[6], topic, next_change(), 0)
return {'', 1}
"""
)

TOUCH = (
    _PRELUDE
    + """
for i = 6, #ARGV do redis.call('ZADD', P .. 'used', 'XX', text(now), ARGV[i]) end
return {''}
"""
)

# ARGV[6..8]: milliseconds after which messages, unused topics and counters of removed topics are
# removed. ARGV[9]: maximum number of each per call. Returns 1 if there may be more, otherwise 0.
SWEEP = (
    _PRELUDE
    + """
local most = tonumber(ARGV[9])
local function before(set, age)
  local last = text(now - tonumber(age))
  return redis.call('ZRANGEBYSCORE', P .. set, '-inf', last, 'LIMIT', 0, most)
end
local room, too_old = most, now - tonumber(ARGV[6])
for _, name in ipairs(before('oldest', ARGV[6])) do
  if room <= 0 then break end
  local topic = load(name)
  if topic then
    drop(name, topic, function (_, time)
      room = room - 1
      return room >= 0 and time <= too_old
    end)
    save(name, topic)
  else
    remove_lost(name)
  end
end
local unused = before('used', ARGV[7])
if #unused > 0 then
  local change = next_change()
  for _, name in ipairs(unused) do
    local topic = load(name)
    if topic then remove(name, topic, change, 1) else remove_lost(name, change) end
  end
end
local gone = before('removed', ARGV[8])
for _, name in ipairs(gone) do
  if redis.call('EXISTS', P .. 't:' .. name) == 0 then forget({name}) end
  redis.call('ZREM', P .. 'removed', name)
end
return {'', (room <= 0 or #unused == most or #gone == most) and 1 or 0}
"""
)

TOTALS = (
    _PRELUDE
    + """
local found = redis.call('HMGET', META, 'topics', 'size', 'published', 'dropped', 'expired')
local totals = {''}
for i = 1, 5 do totals[i + 1] = tonumber(found[i] or 0) end
return totals
"""
)
