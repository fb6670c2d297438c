-- Accepts the words of an owner. ARGV: owners, token, '1' to keep the rest, new lease or '',
-- spacing; then per outcome: hash, kind, status, date.
-- Kinds: n never again, a again at the date, r failed, R refused, u not visited.
-- Answers 'k' with the number of pages that the owner keeps, 's' for a unit that has ended, 'm'
-- with the number of an outcome whose page is not in the unit.
local token = ARGV[2]
if expire(tonumber(ARGV[5])) then store() end
local value = call('HGET', units, token)
if not value then return {'s', summary()} end

local left, hashes = {}, {}
for at = 17, #value, 32 do
  local hash = value:sub(at, at + 15)
  hashes[#hashes + 1] = hash
  left[hash] = value:sub(at + 16, at + 31)
end
local named, is_named = {}, {}
for at = 6, #ARGV, 4 do
  local hash = ARGV[at]
  if not left[hash] or is_named[hash] then return {'m', summary(), (at - 6) / 4} end
  named[#named + 1], is_named[hash] = hash, true
end
local rows = #named > 0 and call('HMGET', pages, unpack(named))
local places, visits = {}, {}
for nth = 1, #named do
  local at = 2 + 4 * nth
  local hash, kind, status, date = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local place
  if kind == 'u' then
    place = left[hash]
  else
    local row = rows[nth] or '00;'
    local attempts, free = 0, 0
    if kind == 'r' or kind == 'R' then
      local visit = row:sub(1, row:find(';', 1, true))
      attempts, free = visit:match(',(%d+),(%d+);$')
      attempts, free = math.min((attempts or 0) + 1, 65535), tonumber(free or 0)
      if kind == 'R' then free = math.min(free + 1, 65535) end
    end
    visits[#visits + 1] = hash
    visits[#visits + 1] = visited(row, status, date, attempts, free)
    if date ~= '' then place = DATED + tonumber(date) end
  end
  if place then
    places[#places + 1] = place
    places[#places + 1] = hash
  end
  left[hash] = nil
end
add_all(places)
if #visits > 0 then call('HSET', pages, unpack(visits)) end

local kept = {value:sub(1, 16)}
if ARGV[4] ~= '' then kept[1] = value:sub(1, 1) .. format('%015d', now + tonumber(ARGV[4])) end
for at = 1, #hashes do
  if left[hashes[at]] then kept[#kept + 1] = hashes[at] .. left[hashes[at]] end
end
if ARGV[3] == '1' and #kept > 1 then
  call('HSET', units, token, table.concat(kept))
else
  release(table.concat(kept):sub(17))
  kept = {''}
  call('HDEL', units, token)
  if value:sub(1, 1) == 'o' then pause(tonumber(ARGV[5])) end
end
store()
return {'k', summary(), #kept - 1}
