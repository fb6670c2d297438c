-- Hands out the first pages. ARGV: owners, token, lease, most pages, spacing, and 's' for a unit that
-- shares the domain, else 'o'.
-- Answers 'u' with the rows of the pages, 'w' if the domain must wait, 't' with the last token if
-- the token is not newer.
local token = tonumber(ARGV[2])
local is_changed = expire(tonumber(ARGV[5]))

-- Moves pages whose date has come to the lane of their priority.
local due = call('ZRANGEBYSCORE', queue, DATED, DATED + now, 'WITHSCORES', 'LIMIT', 0, 500)
local places = {}
for at = 1, #due, 2 do
  local row = call('HGET', pages, due[at]) or '0'
  places[#places + 1] = place_due(tonumber(row:sub(1, 1)), tonumber(due[at + 1]) - DATED)
  places[#places + 1] = due[at]
  is_changed = true
end
add_all(places)

local function answer(kind, more)
  if is_changed then store() end
  return {kind, summary(), more}
end

local held, _, _, owners = leased()
if owners >= owners_max or math.max(may_leave(), blocked) > now or is_full(held) then
  return answer('w')
end
local first = call('ZRANGE', queue, 0, tonumber(ARGV[4]) - 1, 'WITHSCORES')
local hashes, entries = {}, {ARGV[6] .. format('%015d', now + tonumber(ARGV[3]))}
for at = 1, #first, 2 do
  local place = tonumber(first[at + 1])
  if place >= DATED then break end
  hashes[#hashes + 1] = first[at]
  entries[#entries + 1] = first[at] .. format('%016d', place)
end
if #hashes == 0 then return answer('w') end
if token <= last_token then return answer('t', last_token) end
last_token, taken = token, now
if ARGV[6] == 's' then pause(tonumber(ARGV[5])) end
is_changed = true
call('ZREMRANGEBYRANK', queue, 0, #hashes - 1)
call('HSET', units, ARGV[2], table.concat(entries))
return answer('u', call('HMGET', pages, unpack(hashes)))
