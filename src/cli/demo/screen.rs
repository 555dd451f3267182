//! The terminal: drawn in place, restored at the end and on a panic.

use std::{
    env,
    io::{self, IsTerminal, Write},
    panic,
    sync::Once,
};

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const HOME: &str = "\x1b[H";
const CLEAR_TO_END: &str = "\x1b[J";
const CLEAR_LINE: &str = "\x1b[K";

/// Where the demo shows itself.
#[derive(Debug)]
pub enum Screen {
    /// A table that is redrawn in place.
    Terminal {
        /// Whether to use colour.
        colour: bool,
        /// Whether it has been drawn on.
        drawn: bool,
    },
    /// Lines, one after the other.
    Plain,
}

impl Screen {
    /// What stdout is. `plain` asks for lines on a terminal too.
    #[must_use]
    pub fn of_stdout(plain: bool) -> Self {
        let dumb = env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
        if plain || dumb || !io::stdout().is_terminal() {
            return Self::Plain;
        }
        // https://no-color.org: any value but the empty one.
        let colour = env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Self::Terminal { colour, drawn: false }
    }

    /// True for lines.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Width, height and whether to use colour; for a terminal that does not say, the usual 80 by 24.
    #[must_use]
    pub fn size(&self) -> (usize, usize, bool) {
        let colour = matches!(self, Self::Terminal { colour: true, .. });
        match rustix::termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into(), colour),
            _ => (80, 24, colour),
        }
    }

    /// Draws a table in place of the last one.
    ///
    /// # Errors
    /// When stdout is gone.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut frame = String::from(HOME);
        if let Self::Terminal { drawn, .. } = self
            && !*drawn
        {
            restore_on_panic();
            *drawn = true;
            frame.push_str(HIDE_CURSOR);
        }
        for (i, line) in lines.iter().enumerate() {
            // No line end after the last one: at the foot of the terminal it would scroll.
            frame.push_str(if i > 0 { "\r\n" } else { "" });
            frame.push_str(line);
            frame.push_str(CLEAR_LINE);
        }
        frame.push_str(CLEAR_TO_END);
        write(&frame)
    }

    /// Prints a line. On a terminal only before the first and after the last table.
    ///
    /// # Errors
    /// When stdout is gone.
    pub fn line(&self, line: &str) -> io::Result<()> {
        write(&format!("{line}\n"))
    }

    /// Gives the terminal back: the last table stays, what follows is printed below it.
    pub fn restore(&mut self) {
        if let Self::Terminal { drawn, .. } = self
            && std::mem::take(drawn)
        {
            // A terminal that is gone needs no cursor.
            let _ = write(&format!("{SHOW_CURSOR}\r\n"));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore();
    }
}

fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let _ = write(&format!("{SHOW_CURSOR}\r\n"));
            before(info);
        }));
    });
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
