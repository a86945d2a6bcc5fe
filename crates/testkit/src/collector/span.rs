//! Spans in an export request, decoded by the field numbers of opentelemetry-proto 1.x.

use std::collections::BTreeMap;

/// A span as a collector received it. Ids are in hexadecimal, and numbers are texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// Id of the trace.
    pub trace_id: String,
    /// Id of the span.
    pub span_id: String,
    /// Id of its parent; empty without one.
    pub parent_span_id: String,
    /// Name.
    pub name: String,
    /// Kind: 1 is internal.
    pub kind: u64,
    /// Begin, in nanoseconds since 1970.
    pub start_ns: u64,
    /// End, in nanoseconds since 1970.
    pub end_ns: u64,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
    /// Events, in order.
    pub events: Vec<ReceivedEvent>,
    /// Status.
    pub status: StatusCode,
    /// Message of the status.
    pub status_message: String,
    /// W3C flags, and whether the parent is remote.
    pub flags: u32,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
    /// Name of the instrumentation scope.
    pub scope: String,
}

impl ReceivedSpan {
    /// An attribute; empty if there is none.
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", |value| value)
    }
}

/// An event of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedEvent {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Name.
    pub name: String,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
}

/// Status of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusCode {
    /// Neither.
    #[default]
    Unset,
    /// Ok.
    Ok,
    /// Error.
    Error,
}

/// A field of a message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    #[track_caller]
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(number) => panic!("{number} where bytes are expected"),
        }
    }

    #[track_caller]
    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("a string is UTF-8")
    }

    #[track_caller]
    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[track_caller]
    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(bytes) => panic!("{bytes:?} where a number is expected"),
        }
    }
}

/// The fields of a message, by number.
#[track_caller]
fn fields(mut message: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => Value::Number(u64::from_le_bytes(take(&mut message, 8).try_into().expect("8 bytes"))),
            2 => {
                let length = usize::try_from(varint(&mut message)).expect("a length");
                Value::Bytes(take(&mut message, length))
            }
            5 => Value::Number(u32::from_le_bytes(take(&mut message, 4).try_into().expect("4 bytes")).into()),
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

#[track_caller]
fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}

#[track_caller]
fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than 64 bits")
}

/// The spans of an `ExportTraceServiceRequest`. A field that is not known here fails the test: the server sends nothing else.
pub(super) fn decode(request: &[u8]) -> Vec<ReceivedSpan> {
    let mut spans = Vec::new();
    for (number, resource_spans) in fields(request) {
        assert_eq!(number, 1, "resource_spans");
        let mut resource = BTreeMap::new();
        for (number, value) in fields(resource_spans.bytes()) {
            match number {
                1 => resource = attributes(value.bytes(), 1),
                2 => spans.extend(scope_spans(value.bytes(), &resource)),
                other => panic!("field {other} of ResourceSpans"),
            }
        }
    }
    spans
}

fn scope_spans(message: &[u8], resource: &BTreeMap<String, String>) -> Vec<ReceivedSpan> {
    let (mut scope, mut spans) = (String::new(), Vec::new());
    for (number, value) in fields(message) {
        match number {
            1 => scope = fields(value.bytes()).iter().find(|(number, _)| *number == 1).expect("a name").1.text(),
            2 => {
                let span = span(value.bytes());
                spans.push(ReceivedSpan { resource: resource.clone(), scope: scope.clone(), ..span });
            }
            other => panic!("field {other} of ScopeSpans"),
        }
    }
    spans
}

fn span(message: &[u8]) -> ReceivedSpan {
    let mut span = ReceivedSpan::default();
    for (number, value) in fields(message) {
        match number {
            1 => span.trace_id = value.hex(),
            2 => span.span_id = value.hex(),
            4 => span.parent_span_id = value.hex(),
            5 => span.name = value.text(),
            6 => span.kind = value.number(),
            7 => span.start_ns = value.number(),
            8 => span.end_ns = value.number(),
            9 => span.attributes.extend([key_value(value.bytes())]),
            11 => span.events.push(event(value.bytes())),
            15 => (span.status, span.status_message) = status(value.bytes()),
            16 => span.flags = u32::try_from(value.number()).expect("32 bits"),
            other => panic!("field {other} of Span"),
        }
    }
    span
}

fn event(message: &[u8]) -> ReceivedEvent {
    let mut event = ReceivedEvent { attributes: attributes(message, 3), ..ReceivedEvent::default() };
    for (number, value) in fields(message) {
        match number {
            1 => event.time_ns = value.number(),
            2 => event.name = value.text(),
            3 => {}
            other => panic!("field {other} of Event"),
        }
    }
    event
}

fn status(message: &[u8]) -> (StatusCode, String) {
    let (mut code, mut text) = (StatusCode::Unset, String::new());
    for (number, value) in fields(message) {
        match (number, &value) {
            (2, _) => text = value.text(),
            (3, Value::Number(1)) => code = StatusCode::Ok,
            (3, Value::Number(2)) => code = StatusCode::Error,
            (other, _) => panic!("field {other} of Status"),
        }
    }
    (code, text)
}

/// The attributes in this field of a message.
fn attributes(message: &[u8], field: u64) -> BTreeMap<String, String> {
    let fields = fields(message);
    fields.iter().filter(|(number, _)| *number == field).map(|(_, value)| key_value(value.bytes())).collect()
}

fn key_value(message: &[u8]) -> (String, String) {
    let (mut key, mut text) = (String::new(), String::new());
    for (number, value) in fields(message) {
        match number {
            1 => key = value.text(),
            2 => {
                let [(number, value)] = &fields(value.bytes())[..] else { panic!("one value of {key}") };
                text = match number {
                    1 => value.text(),
                    3 => value.number().to_string(),
                    other => panic!("field {other} of AnyValue"),
                };
            }
            other => panic!("field {other} of KeyValue"),
        }
    }
    (key, text)
}

/// An `ExportTraceServiceResponse` that says how many spans were rejected, and why.
pub(super) fn partial_success(rejected: u64, reason: &str) -> Vec<u8> {
    let mut partial = vec![0x08];
    push_varint(&mut partial, rejected);
    partial.push(0x12);
    push_varint(&mut partial, reason.len() as u64);
    partial.extend_from_slice(reason.as_bytes());
    let mut response = vec![0x0a];
    push_varint(&mut response, partial.len() as u64);
    response.extend_from_slice(&partial);
    response
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
