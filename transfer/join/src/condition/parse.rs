//! Parser of conditions: comparisons and `IS NULL`, joined by AND, OR, NOT and brackets.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::{Column, Condition, Literal, Op};

/// Nested brackets and NOTs. Ours: far above any use, and far below the stack of a thread.
const DEPTH_MAX: u32 = 100;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// Keyword or name.
    Word(String),
    /// Name in double quotes.
    Name(String),
    /// Text in single quotes.
    Text(String),
    Number(String),
    Symbol(&'static str),
}

/// Parses a condition. The error states the first part that is not of the grammar.
pub(super) fn parse(text: &str) -> Result<Condition, String> {
    let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable(), depth: 0 };
    let condition = parser.any()?;
    match parser.tokens.next() {
        None => Ok(condition),
        Some(token) => Err(expected("AND, OR or the end", Some(&token))),
    }
}

fn expected(what: &str, found: Option<&Token>) -> String {
    let found = match found {
        None => "the end".to_owned(),
        Some(Token::Symbol(symbol)) => format!("'{symbol}'"),
        Some(Token::Word(it) | Token::Name(it) | Token::Text(it) | Token::Number(it)) => {
            format!("'{it}'")
        }
    };
    format!("expected {what}, found {found}")
}

/// Divides a text into tokens.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    const SYMBOLS: [&str; 11] = ["<>", "!=", "<=", ">=", "<", ">", "=", "(", ")", ".", "-"];
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let token = if first.is_alphabetic() || first == '_' {
            let word = take(&mut rest, |it| it.is_alphanumeric() || it == '_');
            Token::Word(word.to_owned())
        } else if first.is_ascii_digit() {
            let number = take(&mut rest, |it| it.is_ascii_digit() || it == '.').to_owned();
            Token::Number(number)
        } else if first == '"' {
            Token::Name(quoted(&mut rest, '"')?)
        } else if first == '\'' {
            Token::Text(quoted(&mut rest, '\'')?)
        } else {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let symbol = symbol.ok_or_else(|| format!("'{first}' is not supported"))?;
            rest = &rest[symbol.len()..];
            Token::Symbol(symbol)
        };
        tokens.push(token);
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// Removes the start whose characters fit.
fn take<'a>(rest: &mut &'a str, fits: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|it| !fits(it)).unwrap_or(rest.len());
    let (start, after) = rest.split_at(end);
    *rest = after;
    start
}

/// Removes a quoted text from the start. Two quotes stand for one.
fn quoted(rest: &mut &str, quote: char) -> Result<String, String> {
    let mut content = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, next)) = chars.next() {
        if next != quote {
            content.push(next);
        } else if chars.next_if(|(_, second)| *second == quote).is_some() {
            content.push(quote);
        } else {
            *rest = &rest[at + 1..];
            return Ok(content);
        }
    }
    Err(format!("the closing {quote} of {rest} is missing"))
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
    depth: u32,
}

impl Parser {
    /// Removes a keyword, if it is next.
    fn keyword(&mut self, keyword: &str) -> bool {
        let is_next =
            |it: &Token| matches!(it, Token::Word(word) if word.eq_ignore_ascii_case(keyword));
        self.tokens.next_if(is_next).is_some()
    }

    fn symbol(&mut self, symbol: &'static str) -> bool {
        self.tokens.next_if_eq(&Token::Symbol(symbol)).is_some()
    }

    /// Terms between ORs.
    fn any(&mut self) -> Result<Condition, String> {
        let mut terms = vec![self.all()?];
        while self.keyword("or") {
            terms.push(self.all()?);
        }
        Ok(if terms.len() == 1 { terms.swap_remove(0) } else { Condition::Or(terms) })
    }

    /// Terms between ANDs.
    fn all(&mut self) -> Result<Condition, String> {
        let mut terms = vec![self.term()?];
        while self.keyword("and") {
            terms.push(self.term()?);
        }
        Ok(if terms.len() == 1 { terms.swap_remove(0) } else { Condition::And(terms) })
    }

    fn term(&mut self) -> Result<Condition, String> {
        if self.depth >= DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} nested brackets or NOTs"));
        }
        self.depth += 1;
        let term = if self.keyword("not") {
            Condition::Not(Box::new(self.term()?))
        } else if self.symbol("(") {
            let inner = self.any()?;
            if !self.symbol(")") {
                return Err(expected("')'", self.tokens.peek()));
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(term)
    }

    fn comparison(&mut self) -> Result<Condition, String> {
        let mut column = Column { table: None, name: self.name()? };
        if self.symbol(".") {
            column = Column { table: Some(column.name), name: self.name()? };
        }
        if self.keyword("is") {
            let is_negated = self.keyword("not");
            if !self.keyword("null") {
                return Err(expected("NULL", self.tokens.peek()));
            }
            let is_null = Condition::IsNull(column);
            return Ok(if is_negated { Condition::Not(Box::new(is_null)) } else { is_null });
        }
        let operator = self.tokens.next();
        let operator = match operator {
            Some(Token::Symbol("=")) => Op::Eq,
            Some(Token::Symbol("<>" | "!=")) => Op::NotEq,
            Some(Token::Symbol("<")) => Op::Lt,
            Some(Token::Symbol("<=")) => Op::LtEq,
            Some(Token::Symbol(">")) => Op::Gt,
            Some(Token::Symbol(">=")) => Op::GtEq,
            other => return Err(expected("an operator or IS", other.as_ref())),
        };
        Ok(Condition::Compare(column, operator, self.literal()?))
    }

    fn name(&mut self) -> Result<String, String> {
        const KEYWORDS: [&str; 7] = ["and", "or", "not", "is", "null", "true", "false"];
        match self.tokens.next() {
            Some(Token::Name(name)) => Ok(name),
            Some(Token::Word(name)) if !KEYWORDS.contains(&&*name.to_ascii_lowercase()) => Ok(name),
            other => Err(expected("a column", other.as_ref())),
        }
    }

    fn literal(&mut self) -> Result<Literal, String> {
        let sign = if self.symbol("-") { "-" } else { "" };
        match self.tokens.next() {
            Some(Token::Number(number)) => Ok(Literal::Number(format!("{sign}{number}"))),
            Some(Token::Text(text)) if sign.is_empty() => Ok(Literal::Text(text)),
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("true") => {
                Ok(Literal::Boolean(true))
            }
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("false") => {
                Ok(Literal::Boolean(false))
            }
            other => Err(expected("a number, 'text', TRUE or FALSE", other.as_ref())),
        }
    }
}
