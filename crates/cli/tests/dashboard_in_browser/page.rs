//! A page in a browser: what it shows, what it requested, and the input of a person.

use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine;
use leasehold_testkit::process::TIMEOUT;
use serde_json::{Value, json};

use crate::chromium::{BrowserEvent, Chromium};

/// Time between two looks at a condition.
const LOOK: Duration = Duration::from_millis(30);

/// A tab.
pub struct Page<'a> {
    browser: &'a Chromium,
    context: Rc<BrowserContext<'a>>,
    target: String,
    session: String,
}

/// Cookies and a cache that only some tabs share. It ends with the last of them.
struct BrowserContext<'a> {
    browser: &'a Chromium,
    id: String,
}

/// The size of a screen, and whether it is touched.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub scale: f64,
    pub is_touched: bool,
}

/// A window on a desk.
pub const DESKTOP: Screen = Screen { width: 1_280, height: 800, scale: 1.0, is_touched: false };
/// A phone in upright position.
pub const PHONE: Screen = Screen { width: 390, height: 844, scale: 1.0, is_touched: true };

impl Drop for BrowserContext<'_> {
    fn drop(&mut self) {
        let context = json!({ "browserContextId": self.id });
        // A second failure would hide the first.
        let _ = self.browser.try_call(None, "Target.disposeBrowserContext", context);
    }
}

impl<'a> Page<'a> {
    /// Opens an empty page on a desktop screen, with cookies and a cache of its own.
    pub fn open(browser: &'a Chromium) -> Self {
        let context = browser.call(None, "Target.createBrowserContext", json!({ "disposeOnDetach": true }));
        let page = Self::in_context(Rc::new(BrowserContext { browser, id: text(&context["browserContextId"]) }));
        page.set_screen(DESKTOP);
        page
    }

    /// Another tab with the same cookies and cache, in front of this one.
    pub fn sibling(&self) -> Self {
        Self::in_context(self.context.clone())
    }

    fn in_context(context: Rc<BrowserContext<'a>>) -> Self {
        let params = json!({ "url": "about:blank", "browserContextId": context.id });
        let target = text(&context.browser.call(None, "Target.createTarget", params)["targetId"]);
        Self::attached(context, target)
    }

    fn attached(context: Rc<BrowserContext<'a>>, target: String) -> Self {
        let browser = context.browser;
        let attached = browser.call(None, "Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        let page = Self { browser, context, target, session: text(&attached["sessionId"]) };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page
    }

    #[track_caller]
    fn call(&self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Sets the size of the screen.
    pub fn set_screen(&self, screen: Screen) {
        let Screen { width, height, scale, is_touched } = screen;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_touched });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": is_touched }));
    }

    /// Chooses dark or light colors, as the setting of a system does. Movement is always reduced to nothing or not at all.
    pub fn set_colors(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Forbids scripts of pages. Scripts of this test still run.
    pub fn disable_scripts(&self) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    }

    /// Opens an address, as a person who types it, and waits until the page is loaded.
    #[track_caller]
    pub fn goto(&self, url: &str) {
        let seen = self.browser.events().len();
        let result = self.call("Page.navigate", json!({ "url": url }));
        assert_eq!(result["errorText"], Value::Null, "{url}: {result}");
        let deadline = Instant::now() + TIMEOUT;
        let is_load = |event: &BrowserEvent| event.session == self.session && event.method == "Page.loadEventFired";
        while !self.browser.events()[seen..].iter().any(is_load) {
            assert!(Instant::now() < deadline, "{url} is not loaded");
            self.browser.read_events(LOOK);
        }
    }

    /// The value of an expression; `None` while the page is replaced by another.
    fn try_eval(&self, expression: &str) -> Result<Value, String> {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.browser.try_call(Some(&self.session), "Runtime.evaluate", params)?;
        match &result["exceptionDetails"] {
            Value::Null => Ok(result["result"]["value"].clone()),
            thrown => Err(format!("{expression}: {thrown}")),
        }
    }

    /// The value of an expression.
    #[track_caller]
    pub fn eval(&self, expression: &str) -> Value {
        self.try_eval(expression).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until an expression is true of a page that is loaded.
    #[track_caller]
    pub fn wait_for(&self, condition: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let mut last = Ok(Value::Null);
        while last != Ok(Value::Bool(true)) {
            if Instant::now() > deadline {
                let shown = self.try_eval("location.href + '\\n' + document.body.innerText");
                panic!("not in time: {condition}, but {last:?} on {shown:?}");
            }
            self.browser.read_events(LOOK);
            last = self.try_eval(&format!("document.readyState === 'complete' && Boolean({condition})"));
        }
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Waits until the page has read the part that changes again.
    #[track_caller]
    pub fn wait_for_update(&self) {
        self.eval("window.before = document.querySelector('#live'), true");
        self.wait_for("document.querySelector('#live') !== window.before");
    }

    /// The text of the page.
    #[track_caller]
    pub fn text(&self) -> String {
        text(&self.eval("document.body.innerText"))
    }

    /// The number of elements.
    #[track_caller]
    pub fn count(&self, selector: &str) -> u64 {
        self.eval(&format!("document.querySelectorAll({}).length", json!(selector))).as_u64().expect("a number")
    }

    /// The place of the middle of the first element that a selector finds and whose text starts with `label`.
    #[track_caller]
    fn place(&self, selector: &str, label: &str) -> (f64, f64) {
        let found = self.eval(&format!(
            "(() => {{ const found = [...document.querySelectorAll({})].find(one => one.textContent.trim().startsWith({}));
               if (!found) return null;
               found.scrollIntoView({{ block: 'center' }});
               const box = found.getBoundingClientRect();
               return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector),
            json!(label)
        ));
        let place = found[0].as_f64().zip(found[1].as_f64());
        place.unwrap_or_else(|| panic!("no {selector} with {label:?} on {}", self.text()))
    }

    fn mouse(&self, kind: &str, (x, y): (f64, f64), buttons: u32) {
        let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Clicks an element with the mouse.
    #[track_caller]
    pub fn click(&self, selector: &str, label: &str) {
        let place = self.place(selector, label);
        self.mouse("mousePressed", place, 1);
        self.mouse("mouseReleased", place, 0);
    }

    /// Drags the mouse horizontally over an element, between two parts of its width.
    #[track_caller]
    pub fn drag(&self, selector: &str, from: f64, to: f64) {
        let (_, y) = self.place(selector, "");
        let edges = self.eval(&format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect(); return [box.left, box.width]; }})()",
            json!(selector)
        ));
        let x = |part: f64| edges[0].as_f64().expect("a number") + edges[1].as_f64().expect("a number") * part;
        self.mouse("mousePressed", (x(from), y), 1);
        self.mouse("mouseMoved", (x(f64::midpoint(from, to)), y), 1);
        self.mouse("mouseMoved", (x(to), y), 1);
        self.mouse("mouseReleased", (x(to), y), 0);
    }

    /// Presses a key: a letter or sign, `Enter`, `Tab` or `Escape`.
    pub fn press(&self, key: &str) {
        let (text, code) = match key {
            "Enter" => ("\r", 13),
            "Tab" => ("", 9),
            "Escape" => ("", 27),
            sign => (sign, 0),
        };
        let mut down =
            json!({ "type": if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "key": key, "text": text });
        if code > 0 {
            down["windowsVirtualKeyCode"] = json!(code);
            down["code"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
    }

    /// Types a text into the focused field.
    pub fn type_text(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    fn events(&self) -> Vec<BrowserEvent> {
        self.browser.read_events(Duration::ZERO);
        self.browser.events().iter().filter(|event| event.session == self.session).cloned().collect()
    }

    /// Addresses of all requests, in their order.
    pub fn requests(&self) -> Vec<String> {
        let sent = self.events().into_iter().filter(|event| event.method == "Network.requestWillBeSent");
        sent.map(|event| text(&event.params["request"]["url"])).collect()
    }

    /// Errors and warnings in the console: of scripts, of the policy, and of requests that failed.
    pub fn problems(&self) -> Vec<String> {
        let is_severe = |level: &Value| ["error", "warning", "assert"].iter().any(|severe| level == severe);
        let of = |event: BrowserEvent| match event.method.as_str() {
            "Runtime.exceptionThrown" => Some(event.params.to_string()),
            "Runtime.consoleAPICalled" if is_severe(&event.params["type"]) => Some(event.params.to_string()),
            "Log.entryAdded" if is_severe(&event.params["entry"]["level"]) => Some(event.params.to_string()),
            "Network.webSocketCreated" => Some(event.params.to_string()),
            _ => None,
        };
        self.events().into_iter().filter_map(of).collect()
    }

    /// Status of the responses to an address.
    pub fn statuses(&self, url: &str) -> Vec<u64> {
        let of = |event: BrowserEvent| {
            let response = &event.params["response"];
            let is_of = event.method == "Network.responseReceived" && response["url"] == url;
            is_of.then(|| response["status"].as_u64().expect("a status"))
        };
        self.events().into_iter().filter_map(of).collect()
    }

    /// Controls without a name for people who do not see the page, as the browser computes it.
    pub fn unnamed_controls(&self) -> Vec<String> {
        self.call("Accessibility.enable", json!({}));
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        self.call("Accessibility.disable", json!({}));
        let roles = ["link", "button", "textbox", "searchbox", "spinbutton", "combobox", "checkbox", "image", "dialog"];
        let is_control =
            |node: &&Value| node["ignored"] == false && roles.iter().any(|role| node["role"]["value"] == *role);
        let nodes = tree["nodes"].as_array().expect("a list").iter();
        let controls: Vec<&Value> = nodes.filter(is_control).collect();
        assert!(controls.len() > 7, "the navigation has links: {tree}");
        let unnamed = controls.into_iter().filter(|node| node["name"]["value"].as_str().is_none_or(str::is_empty));
        unnamed.map(Value::to_string).collect()
    }

    /// Shows this tab in front of all others of its window.
    pub fn bring_to_front(&self) {
        self.call("Page.bringToFront", json!({}));
    }

    /// The tab that this page has opened; waits for it.
    #[track_caller]
    pub fn opened(&self) -> Page<'a> {
        let deadline = Instant::now() + TIMEOUT;
        let target = loop {
            let targets = self.browser.call(None, "Target.getTargets", json!({}));
            let targets = targets["targetInfos"].as_array().expect("a list").iter();
            let mut others = targets.filter(|target| {
                target["type"] == "page"
                    && target["browserContextId"] == self.context.id
                    && target["targetId"] != self.target
            });
            if let Some(target) = others.next() {
                break text(&target["targetId"]);
            }
            assert!(Instant::now() < deadline, "no tab is opened");
            self.browser.read_events(LOOK);
        };
        Self::attached(self.context.clone(), target)
    }

    /// The visible part of the page as a PNG image.
    pub fn image(&self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = shot["data"].as_str().expect("a text");
        base64::engine::general_purpose::STANDARD.decode(data).expect("the browser encodes it")
    }
}

/// A text.
#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("expected a text, not {value}")).to_owned()
}
