-- Adds pages. ARGV: owners, pages of the domain, room of the crawl, whether a new domain has room;
-- then per page: hash, row, and the date from which on it is due, or '' for now. A page that was
-- visited elsewhere has a 'v' before its date; without a date it is finished.
local room = math.min(tonumber(ARGV[2]) - call('HLEN', pages), tonumber(ARGV[3]))
if version == 0 and ARGV[4] == '0' then room = 0 end
local answers, places = {}, {}
local is_changed = false
for at = 5, #ARGV, 3 do
  local hash, row, when = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local answer = 'k'
  if room <= 0 then
    if call('HEXISTS', pages, hash) == 0 then answer = 'f' end
  else
    row = row:sub(1, 1) .. format('%.0f', now) .. row:sub(2)
    local is_visited, date = when:match('^(v?)(%d*)$')
    if is_visited == 'v' then row = visited(row, '0', date, 0, 0) end
    if call('HSETNX', pages, hash, row) == 1 then
      answer, is_changed, room = 'n', true, room - 1
      local place
      local due = tonumber(date) or now
      if due > now then
        place = DATED + due
      elseif when ~= 'v' then
        place = place_due(tonumber(row:sub(1, 1)), due)
      end
      if place then
        places[#places + 1] = place
        places[#places + 1] = hash
      end
    end
  end
  answers[#answers + 1] = answer
end
add_all(places)
if is_changed then store() end
return {table.concat(answers), summary()}
