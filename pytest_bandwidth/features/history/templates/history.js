// The page of a history: nothing but its charts needs a script.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  chartDrawer({ ...data, tipOf: (_datum, value) => Object.entries(value), clicked: () => {} });
  document.getElementById("plain")?.remove();
})();
