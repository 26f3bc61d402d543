// The page of a history: nothing but its charts needs a script.
(async () => {
  const data = await pageData();
  chartDrawer({ ...data, tipOf: (_datum, value) => Object.entries(value), clicked: () => {} });
  document.getElementById("plain")?.remove();
})();
