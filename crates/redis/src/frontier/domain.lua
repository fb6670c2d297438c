-- What all scripts about one domain share. KEYS: its state, pages, queue and units.
-- ARGV[1]: the most owners of a domain.
--
-- pages: hash of a URL -> row: priority digit, date when it was added, last visit or nothing, ';',
-- the rest.
-- queue: hash of a URL -> place. Lanes of priorities come first, then the dates of later visits.
-- units: token -> end of the lease (15 digits), then 32 bytes per page: hash and place.
local state, pages, queue, units = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call, format = redis.call, string.format
local LANE, DATED = 35184372088832, 1125899906842624
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local owners_max = tonumber(ARGV[1])

local stored = call('HMGET', state, 'version', 'token', 'next', 'order', 'blocked', 'delay')
for at = 1, 6 do stored[at] = tonumber(stored[at] or 0) end
local version, last_token, next_at, order, blocked, delay = unpack(stored)

-- The version grows with each change, also over a deletion.
local function store()
  version = math.max(version + 1, micros)
  call('HSET', state, 'version', version, 'token', last_token, 'next', next_at, 'order', order)
end

local function add_all(places)
  if #places > 0 then call('ZADD', queue, unpack(places)) end
end

-- Returns the pages of a unit to their places.
local function release(entries)
  local places = {}
  for at = 1, #entries, 32 do
    places[#places + 1] = entries:sub(at + 16, at + 31)
    places[#places + 1] = entries:sub(at, at + 15)
  end
  add_all(places)
end

local function pause(length)
  next_at = math.max(next_at, now + math.max(length, delay))
end

-- Ends the units whose lease is over. Returns whether there was one.
local function expire(spacing)
  local held, expired = call('HGETALL', units), false
  for at = 1, #held, 2 do
    if tonumber(held[at + 1]:sub(1, 15)) <= now then
      release(held[at + 1]:sub(16))
      call('HDEL', units, held[at])
      pause(spacing)
      expired = true
    end
  end
  return expired
end

-- Returns what the schedule keeps of this domain: version, pages, ready, dated, leased, owners,
-- priority, and the time when it may be handed out (0: nothing waits).
local function summary()
  local known, waiting = call('HLEN', pages), call('ZCARD', queue)
  local ready, leased, owners, priority, due, expiry = 0, 0, 0, 0, 0, nil
  local held = call('HVALS', units)
  for at = 1, #held do
    local ends = tonumber(held[at]:sub(1, 15))
    owners, leased = owners + 1, leased + (#held[at] - 15) / 32
    if not expiry or ends < expiry then expiry = ends end
  end
  if waiting > 0 then
    ready = call('ZCOUNT', queue, '-inf', '(1125899906842624')
    local first = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local place = tonumber(first[2])
    due = math.max(next_at, blocked, 1)
    if place < DATED then
      priority = 9 - math.floor(place / LANE)
    else
      due = math.max(due, place - DATED)
      priority = tonumber((call('HGET', pages, first[1]) or '0'):sub(1, 1))
    end
  end
  if expiry and (waiting == 0 or owners >= owners_max) then due = expiry end
  local at = version > 0 and version or micros
  return format('%.0f %d %d %d %d %d %d %.0f', at, known, ready, waiting - ready, leased, owners,
    priority, due)
end

-- Returns the row of a page after a visit.
local function visited(row, status, again, attempts, free)
  local rest = row:sub(row:find(';', 1, true), -1)
  local visit = format(',%.0f,%s,%s,%d,%d', now, status, again, attempts, free)
  return row:match('^%d+') .. visit .. rest
end
