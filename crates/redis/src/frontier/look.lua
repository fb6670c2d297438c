-- Returns what is known about the domain. ARGV: owners.
local answer = {version > 0 and 'k' or 'x', summary(), now, may_leave(), blocked, delay, limit}
local tokens = call('HKEYS', units)
for at = 1, #tokens do answer[#answer + 1] = tokens[at] end
return answer
