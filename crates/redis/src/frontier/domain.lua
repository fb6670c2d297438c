-- What all scripts about one domain share. KEYS: its state, pages, queue and units.
-- ARGV[1]: the most owners of a domain.
--
-- state: version, last token, next time, order, time of the last take, end of the block, delay,
-- bound of finished pages.
-- pages: hash of a URL -> row: priority digit, date when it was added, last visit or nothing, ';',
-- the rest.
-- queue: hash of a URL -> place. Lanes of priorities come first, each in the order of the seconds
-- from which on its pages are due; then the dates of later visits. All places are exact doubles.
-- units: token -> 'o' for an owner of the domain or 's' for a unit that shares it, end of the lease
-- (15 digits), then 32 bytes per page: hash and place.
local state, pages, queue, units = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call, format = redis.call, string.format
local LANE, SECOND, DATED = 562949953421312, 131072, 8725724278030336
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local stamp = format(',%d,', now)
local owners_max = tonumber(ARGV[1])

local stored = {(call('GET', state) or '0 0 0 0 0 0 0 0'):match(('(%d+) ?'):rep(8))}
for at = 1, 8 do stored[at] = tonumber(stored[at]) end
local version, last_token, next_at, order, taken, blocked, delay, limit = unpack(stored)

-- The version grows with each change, also over a deletion.
local function store()
  version = math.max(version + 1, micros)
  call('SET', state, format('%d %d %d %d %d %d %d %d', version, last_token, next_at, order, taken,
    blocked, delay, limit))
end

-- Returns the place of a page that is due since a date: behind the others of its second.
local function place_due(priority, date)
  order = (order + 1) % SECOND
  return (9 - priority) * LANE + math.min(math.floor(date / 1000), 4294967295) * SECOND + order
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
  next_at = math.max(next_at, now + length)
end

-- Returns the time from which on the domain may be handed out, if nothing else keeps it. The delay
-- counts from the last take.
local function may_leave()
  return taken > 0 and math.max(next_at, taken + delay) or next_at
end

-- Returns the pages of all units, those of live units, the live units, the owners, and the first end
-- of a lease, or nothing.
local function leased()
  local all, live, count, owners, first = 0, 0, 0, 0, nil
  local held = call('HVALS', units)
  for at = 1, #held do
    local ends, size = tonumber(held[at]:sub(2, 16)), (#held[at] - 16) / 32
    all = all + size
    if ends > now then live, count = live + size, count + 1 end
    if held[at]:sub(1, 1) == 'o' then owners = owners + 1 end
    if not first or ends < first then first = ends end
  end
  return all, live, count, owners, first
end

-- Returns whether an operator's bound of finished pages is reached.
local function is_full(held)
  return limit > 0 and call('HLEN', pages) - call('ZCARD', queue) - held >= limit
end

-- Ends the units whose lease is over. Returns whether there was one.
local function expire(spacing)
  local held, expired = call('HGETALL', units), false
  for at = 1, #held, 2 do
    if tonumber(held[at + 1]:sub(2, 16)) <= now then
      release(held[at + 1]:sub(17))
      call('HDEL', units, held[at])
      if held[at + 1]:sub(1, 1) == 'o' then pause(spacing) end
      expired = true
    end
  end
  return expired
end

-- Returns what the schedule keeps of this domain: version, pages, ready, dated, leased, live units,
-- priority, the time when it may be handed out (0: nothing waits), and the first end of a lease (0:
-- there is no unit). The pages of a unit whose lease is over are ready.
local function summary()
  local known, waiting = call('HLEN', pages), call('ZCARD', queue)
  local ready, priority, due = 0, 0, 0
  local held, live, count, owners, expiry = leased()
  if waiting > 0 then
    ready = call('ZCOUNT', queue, '-inf', '(8725724278030336')
    local first = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local place = tonumber(first[2])
    due = math.max(may_leave(), blocked, 1)
    if place < DATED then
      priority = 9 - math.floor(place / LANE)
    else
      due = math.max(due, place - DATED)
      priority = tonumber((call('HGET', pages, first[1]) or '0'):sub(1, 1))
    end
  end
  if expiry and (waiting == 0 or owners >= owners_max) then due = expiry end
  if is_full(held) then due = 0 end
  local at = version > 0 and version or micros
  return format('%d %d %d %d %d %d %d %d %d', at, known, ready + held - live, waiting - ready,
    live, count, priority, due, expiry or 0)
end

-- Returns the row of a page after a visit.
local function visited(row, status, again, attempts, free)
  local start, rest = row:match('^%d+'), row:sub(row:find(';', 1, true), -1)
  return start .. stamp .. status .. ',' .. again .. ',' .. attempts .. ',' .. free .. rest
end
