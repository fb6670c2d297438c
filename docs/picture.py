#!/usr/bin/env python3
"""A picture of a command at work: runs it on a terminal of its own and draws two screens of it as SVG.

usage: docs/picture.py SECONDS OUT.svg COMMAND...

The first screen is the one after SECONDS, the second the one at the end; the title is COMMAND as typed.
What of a terminal is understood is what progress bars need: carriage return, line feed, cursor up, erase line.
"""

import html
import os
import pty
import re
import select
import struct
import sys
import termios
import time
import fcntl

COLUMNS, ROWS = 116, 40
FONT_PX, LINE_PX, CHAR_PX, PAD_PX = 13, 17, 7.83, 16


class Screen:
    def __init__(self):
        self.lines, self.row, self.column = [""], 0, 0

    def feed(self, text):
        for escape, number, kind, char in re.findall(r"(\x1b\[\??([0-9;]*)([A-Za-z]))|([^\x1b])", text):
            if escape:
                count = int(number) if number.isdigit() else 1
                if kind == "A":
                    self.row = max(0, self.row - count)
                elif kind == "B":
                    self.row += count
                elif kind == "G":
                    self.column = count - 1
                elif kind == "K":
                    self.put_line("" if number == "2" else self.line()[: self.column])
                elif kind == "J":
                    del self.lines[self.row + 1 :]
                    self.put_line(self.line()[: self.column])
            elif char == "\r":
                self.column = 0
            elif char == "\n":
                self.row, self.column = self.row + 1, 0
            else:
                if self.column >= COLUMNS:  # a full line goes on below
                    self.row, self.column = self.row + 1, 0
                line = self.line().ljust(self.column)
                self.put_line(line[: self.column] + char + line[self.column + 1 :])
                self.column += 1

    def line(self):
        while len(self.lines) <= self.row:
            self.lines.append("")
        return self.lines[self.row]

    def put_line(self, text):
        self.line()
        self.lines[self.row] = text

    def text(self):
        lines = [line.rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def run(command, after_s):
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm", COLUMNS=str(COLUMNS), NO_COLOR="1")
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen, rest, middle, began = Screen(), b"", None, time.monotonic()
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.1)
        if middle is None and time.monotonic() - began > after_s:
            middle = screen.text()
        if not ready:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
        if not chunk:
            break
        text = (rest + chunk).decode("utf-8", "ignore")
        # An escape sequence or a character may be cut by the end of a read.
        cut = text.rfind("\x1b")
        keep = text[cut:] if cut >= 0 and not re.match(r"\x1b\[\??[0-9;]*[A-Za-z]", text[cut:]) else ""
        screen.feed(text[: len(text) - len(keep)])
        rest = keep.encode()
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"{command[0]}: exit status {os.waitstatus_to_exitcode(status)}")
    return middle, screen.text()


def svg(title, screens):
    rows = []
    for number, (caption, lines) in enumerate(screens):
        rows += [("caption", caption)] + [("text", line) for line in lines] + [("text", "")] * (number == 0)
    width = max([len(text) for _, text in rows] + [len(title) + 2]) * CHAR_PX + 2 * PAD_PX
    height = (len(rows) + 2) * LINE_PX + 2 * PAD_PX
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{html.escape(title)}">',
        # One look that reads on white and on black.
        "<style>text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dae0;white-space:pre}"
        ".caption{fill:#8b93a5}.prompt{fill:#8fbf8f}</style>" % FONT_PX,
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#20242c" stroke="#5a6272"/>',
        f'<text class="prompt" x="{PAD_PX}" y="{PAD_PX + FONT_PX}">$ {html.escape(title)}</text>',
    ]
    for number, (kind, text) in enumerate(rows):
        y = PAD_PX + FONT_PX + (number + 1.5) * LINE_PX
        if text:
            out.append(f'<text class="{kind}" x="{PAD_PX}" y="{y:.0f}" xml:space="preserve">{html.escape(text)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    after_s, out, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
    middle, end = run(command, after_s)
    title = " ".join([os.path.basename(command[0]), *command[1:]])
    screens = [(f"after {after_s:g} s", middle or []), ("at the end", end)]
    with open(out, "w") as file:
        file.write(svg(title, screens))


main()
