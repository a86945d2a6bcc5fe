//! Values of a metrics page that other calls do not show.

/// A page in the format of OpenMetrics.
pub struct MetricsPage(String);

impl MetricsPage {
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The value of a metric without labels.
    pub fn value(&self, name: &str) -> Option<f64> {
        let line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.split_whitespace().next()?.parse().ok();
        self.0.lines().find_map(line)
    }

    /// The version of the server.
    pub fn version(&self) -> Option<&str> {
        let labels = self.0.lines().find_map(|line| line.strip_prefix("leasehold_build_info{"))?;
        labels.split_once("version=\"")?.1.split('"').next()
    }
}

#[cfg(test)]
mod tests {
    use super::MetricsPage;

    #[test]
    fn values_are_found_by_their_whole_name() {
        let page = "# TYPE a gauge\nab 2\na{x=\"y\"} 3\na 1\nleasehold_build_info{version=\"1.2.3\"} 1\nt 1.5e9\n";
        let page = MetricsPage::new(page.to_owned());
        assert_eq!((page.value("a"), page.value("t"), page.value("b")), (Some(1.0), Some(1.5e9), None));
        assert_eq!(page.version(), Some("1.2.3"));
        assert_eq!(MetricsPage::new(String::new()).version(), None);
    }
}
